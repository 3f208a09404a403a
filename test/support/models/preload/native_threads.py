"""A package with a thread that Python does not know, as a library in C may have."""

import ctypes

library = ctypes.CDLL(None)
library.pthread_create(ctypes.byref(ctypes.c_ulong()), None, library.pause, None)
