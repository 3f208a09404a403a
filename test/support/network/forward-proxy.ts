// A forward proxy, as companies have: tunnels by CONNECT, and plain requests with a whole URL. It alone knows where the
// names of the tests lead.
import { createServer, request as sendRequest } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';

export interface ForwardProxy {
  url: string;
  /** `CONNECT host:port` and `POST http://host/path` as they came. */
  seen: string[];
  /** The Proxy-Authorization headers. */
  logins: (string | undefined)[];
  close(): Promise<void>;
}

interface ForwardProxyOptions {
  /** Ports on this machine, by `host:port` of the requests. Others are refused. */
  ports: Readonly<Record<string, number>>;
  /** Answers no CONNECT. */
  isSilent?: boolean;
}

export async function startForwardProxy(options: ForwardProxyOptions): Promise<ForwardProxy> {
  const { isSilent = false, ports } = options;
  const seen: string[] = [];
  const logins: (string | undefined)[] = [];
  const sockets = new Set<Socket>();
  const server = createServer((request, response) => {
    seen.push(`${request.method} ${request.url}`);
    logins.push(request.headers['proxy-authorization']);
    const url = new URL(request.url ?? '');
    const port = ports[`${url.hostname}:${url.port || '80'}`];
    if (port === undefined) return void response.writeHead(502).end('no route');
    const { headers, method } = request;
    const path = url.pathname + url.search;
    const passed = sendRequest({ host: '127.0.0.1', port, method, path, headers }, (answer) => {
      response.writeHead(answer.statusCode ?? 502, answer.headers);
      answer.pipe(response);
    });
    passed.on('error', () => response.destroy());
    response.on('close', () => passed.destroy());
    request.pipe(passed);
  });
  server.on('connection', (socket) => sockets.add(socket));
  server.on('connect', (request, socket, head) => {
    seen.push(`CONNECT ${request.url}`);
    logins.push(request.headers['proxy-authorization']);
    const port = ports[request.url ?? ''];
    socket.on('error', () => {});
    if (isSilent) return;
    if (port === undefined) return void socket.end('HTTP/1.1 502 no route\r\n\r\n');
    const target = connect(port, '127.0.0.1', () => {
      socket.write('HTTP/1.1 200 connected\r\n\r\n');
      if (head.length > 0) target.write(head);
      target.pipe(socket).pipe(target);
    });
    sockets.add(target);
    target.on('error', () => socket.destroy());
    socket.on('close', () => target.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    seen,
    logins,
    close: () => {
      for (const socket of sockets) socket.destroy();
      return new Promise((resolve) => server.close(() => resolve()));
    },
  };
}
