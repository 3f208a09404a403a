"""A model process whose start is mostly the import of numpy, as that of a real one is mostly the import of its framework."""

import numpy

from millrace_model import handler, run

weights = numpy.ones((64, 64))


@handler
def multiply(input):
    return float((weights @ weights)[0][0])


run()
