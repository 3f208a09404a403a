"""Floor of a model process: returns messages of a fixed size over a bare socket, without frames."""

import socket
import sys

size = int(sys.argv[1])
pipe = socket.socket(fileno=3)
pipe.setblocking(True)
message = memoryview(bytearray(size))
while True:
    rest = message
    while rest:
        count = pipe.recv_into(rest)
        if count == 0:
            sys.exit()
        rest = rest[count:]
    pipe.sendall(message)
