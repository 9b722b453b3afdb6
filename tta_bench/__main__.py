"""`python -m tta_bench` is the command `ttabench`."""

from tta_bench.cli.main import main

if __name__ == "__main__":
    main()
