"""A small extension module in C, built as its author would."""

from __future__ import annotations

import importlib.machinery
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

INCLUDE = Path(sysconfig.get_path("include"))
SUFFIX = importlib.machinery.EXTENSION_SUFFIXES[0]
SOURCE = """
#include <Python.h>
double plain_gain(void) { return GAIN; }
static PyObject *gain(PyObject *self, PyObject *none) { return PyFloat_FromDouble(GAIN); }
static PyMethodDef methods[] = {{"gain", gain, METH_NOARGS, ""}, {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "NAME", 0, -1, methods};
PyMODINIT_FUNC PyInit_NAME(void) { return PyModule_Create(&module); }
"""
needs_a_compiler = pytest.mark.skipif(
    shutil.which("gcc") is None or not (INCLUDE / "Python.h").is_file(), reason="no C compiler, or no Python.h"
)


def build(folder: Path, name: str, gain: str) -> Path:
    """A module with a function `gain`, which ctypes finds as `plain_gain`."""
    file = folder / f"{name}{SUFFIX}"
    line = ["gcc", "-shared", "-fPIC", f"-I{INCLUDE}", f"-DGAIN={gain}", "-x", "c", "-", "-o", str(file)]
    subprocess.run(line, input=SOURCE.replace("NAME", name), text=True, check=True)
    return file
