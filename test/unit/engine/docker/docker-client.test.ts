import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type RequestListener, type Server } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { silentLog } from '../../../../src/base/log.ts';
import {
  DockerClient,
  DockerError,
  Images,
  isAboutDiskSize,
  isNameTaken,
  judgePull,
  judgeRefusal,
} from '../../../../src/engine/docker/docker-client.ts';
import { EngineError } from '../../../../src/engine/engine.ts';

let folder: string;
let server: Server | undefined;
let client: DockerClient | undefined;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'millrace-docker-'));
});

afterEach(async () => {
  vi.unstubAllEnvs();
  await client?.close();
  server?.close();
  server?.closeAllConnections();
  rmSync(folder, { recursive: true, force: true });
});

/** An engine at a socket, and its client. */
async function connect(answer: RequestListener, callLimitMs?: number): Promise<DockerClient> {
  const socket = join(folder, 'an engine.sock');
  server = createServer(answer).listen(socket);
  await once(server, 'listening');
  client = new DockerClient(`unix://${encodeURI(socket)}`, callLimitMs);
  return client;
}

it.each(['/var/run/docker.sock', 'tcp://host', 'ssh://host:22', 'https://host:2376', 'unix://'])(
  'refuses the address %s',
  (host) => {
    expect(() => new DockerClient(host)).toThrow(host);
  },
);

describe('the client of an engine', () => {
  it('calls the configured engine, whatever the environment says', async () => {
    vi.stubEnv('DOCKER_HOST', 'tcp://127.0.0.1:9');
    vi.stubEnv('DOCKER_TLS_VERIFY', '1');
    server = createServer((_, response) => response.end('{"ID":"mine"}')).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const address = server.address();
    const port = typeof address === 'object' ? address?.port : undefined;
    client = new DockerClient(`tcp://127.0.0.1:${port}`);
    expect(client.isLocal).toBe(false);
    expect(await client.ask({ path: '/info' })).toEqual({ ID: 'mine' });
  });

  it('names an engine that does not answer', async () => {
    client = new DockerClient('unix:///nowhere/docker.sock');
    const asked = client.find({ path: '/info' });
    await expect(asked).rejects.toThrow(
      /engine at unix:\S+ does not answer: .*ENOENT \/nowhere\/docker.sock/,
    );
    await expect(asked).rejects.toMatchObject({ code: 'unavailable' });
  });

  it('sends a query and a body, and reads an answer without content', async () => {
    const calls: string[] = [];
    const docker = await connect(async (request, response) => {
      let body = '';
      for await (const piece of request) body += piece;
      calls.push(`${request.method} ${request.url} ${request.headers['content-type']} ${body}`);
      response.writeHead(204).end();
    });
    const query = { force: true, t: 3, name: 'a/b c' };
    expect(await docker.ask({ method: 'DELETE', path: '/x', query })).toBeUndefined();
    expect(await docker.act({ method: 'POST', path: '/y', body: { A: 1 } })).toBeUndefined();
    expect(calls).toEqual([
      'DELETE /x?force=true&t=3&name=a%2Fb%20c undefined ',
      'POST /y application/json {"A":1}',
    ]);
  });

  it.each([
    ['JSON', '{"message":"no such thing\\n"}', 'no such thing'],
    ['the page of a proxy', '<p>no', '<p>no'],
    ['too much', 'x'.repeat(200_000), 'x'.repeat(65_536)],
  ])('reads an error that is %s', async (_what, answer, message) => {
    const docker = await connect((_, response) => response.writeHead(404).end(answer));
    const call = { path: '/containers/x/json' };
    expect(await docker.act(call)).toEqual(new DockerError(404, message));
    expect(await docker.find(call)).toBeUndefined();
    expect(await docker.findStream(call)).toBeUndefined();
    await expect(docker.ask(call)).rejects.toMatchObject({ status: 404 });
  });

  it('ends a call at its limit, and a stream at its signal', async () => {
    const docker = await connect((request, response) => {
      if (request.url === '/events') response.write('{"Action":"start"}\n');
    }, 50);
    await expect(docker.ask({ path: '/info' })).rejects.toThrow(/does not answer: .*timeout/);
    const abort = new AbortController();
    const stream = await docker.open({ path: '/events' }, abort.signal);
    const read = async () => {
      for await (const piece of stream) abort.abort(new Error(`${piece}`.trim()));
    };
    await expect(read()).rejects.toThrow('{"Action":"start"}');
  });

  it('reports an answer that is cut or not JSON as unavailable', async () => {
    const docker = await connect((request, response) => {
      if (request.url === '/text') return response.end('<p>yes');
      response.writeHead(200, { 'content-length': 9 });
      return response.write('{"ID"', () => response.destroy());
    });
    for (const path of ['/cut', '/text']) {
      await expect(docker.ask({ path })).rejects.toBeInstanceOf(EngineError);
    }
  });

  it('sends the login of a registry in the alphabet of URLs', async () => {
    let sent: unknown;
    const docker = await connect((request, response) => {
      if (request.method !== 'POST') return response.writeHead(404).end();
      sent = request.headers['x-registry-auth'];
      return response.end(`{"status":"Pulling"}\n{"status":"${request.url}"}`);
    });
    const login = { server: 'ghcr.io', username: 'ada', password: '>>>???ÿ' };
    await new Images({ client: docker, log: silentLog }).provide('ghcr.io/a/b', login);
    expect(sent).toMatch(/^[\w-]+={0,2}$/);
    expect(JSON.parse(Buffer.from(`${sent}`, 'base64url').toString())).toEqual({
      ...{ username: 'ada', password: '>>>???ÿ', serveraddress: 'ghcr.io' },
    });
  });
});

const COMMAND_OF_DOCKER =
  'OCI runtime create failed: runc create failed: unable to start container process: exec: "nope": executable file not found in $PATH: unknown';
const COMMAND_OF_PODMAN =
  'crun: executable file `nope` not found in $PATH: No such file or directory: OCI runtime attempted to invoke a command that was not found';

describe('an engine that does not start a container', () => {
  it.each([
    ['an invalid request', 400, 'Duplicate mount point: /m', null],
    ['an unknown command, in Docker', 400, COMMAND_OF_DOCKER, 127],
    ['an unknown command, in podman', 500, COMMAND_OF_PODMAN, 0],
    ['a command that is not executable', 500, 'no words for it', 126],
    ['GPUs on an engine without', 500, 'could not select device driver "nvidia"', 128],
    ['a GPU that CDI does not know', 500, 'CDI device injection failed: unresolvable', 128],
  ])('is not retried: %s', (_what, status, message, code) => {
    expect(judgeRefusal(new DockerError(status, message), code)).toMatchObject({
      code: 'refused',
      message,
    });
  });

  it.each([
    ['a port that was taken meanwhile', 500, 'listen tcp4 127.0.0.1:80: address already in use'],
    ['a network that was removed meanwhile', 404, 'network millrace-apart not found'],
    ['a network whose name has a twin', 400, 'network a is ambiguous (2 matches found on name)'],
    ['a volume that is not mounted yet', 400, 'bind source path does not exist: /mnt/data'],
    ['an internal error', 500, 'context deadline exceeded'],
    ['a name that is not free yet', 409, 'Conflict. The name is already in use by container "x"'],
  ])('is retried: %s', (_what, status, message) => {
    const judged = judgeRefusal(new DockerError(status, message), null);
    expect(judged).toMatchObject({ code: 'unavailable', message });
  });
});

describe('an image that is not available', () => {
  it.each([
    'manifest for 127.0.0.1:5000/thing:9 not found: manifest unknown: unknown',
    'pull access denied for thing, repository does not exist or may require docker login',
    'Head "https://ghcr.io/v2/thing/manifests/1": unauthorized: authentication required',
    'Head "http://127.0.0.1:5999/v2/a/b/manifests/1": no basic auth credentials',
    'no matching manifest for linux/arm64/v8 in the manifest list entries',
  ])('is not pulled again: %s', (message) => {
    expect(judgePull('thing:9', message)).toMatchObject({ code: 'refused' });
  });

  it.each([
    'Get "https://registry-1.docker.io/v2/": dial tcp: lookup registry-1.docker.io: no such host',
    'Get "http://localhost:9/v2/": dial tcp 127.0.0.1:9: connect: connection refused',
    'toomanyrequests: You have reached your pull rate limit',
    'net/http: TLS handshake timeout',
    'write /var/lib/docker/tmp/x: no space left on device',
  ])('is pulled again: %s', (message) => {
    expect(judgePull('thing:9', message)).toMatchObject({ code: 'unavailable' });
  });
});

describe('common engine messages', () => {
  it.each([
    'Conflict. The container name "/a" is already in use by container "b"',
    'creating container storage: the container name "a" is already in use by b',
    'network with name a already exists',
    'network name a already used: network already exists',
  ])('report a taken name: %s', (message) => {
    expect(isNameTaken(new DockerError(500, message))).toBe(true);
  });

  it.each([
    "--storage-opt is supported only for overlay over xfs with 'pquota' mount option",
    'the storage-opt option is not supported with this driver',
  ])('report that disks cannot be limited: %s', (message) => {
    expect(isAboutDiskSize(new DockerError(500, message))).toBe(true);
  });
});
