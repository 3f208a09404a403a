"""A package that is safe to fork. It counts its imports."""

import os
import time

began = time.monotonic()
imported_by = os.getpid()
