"""Is it what it should be? Conformance of plugins, fidelity of backbones, the state of the installation."""
