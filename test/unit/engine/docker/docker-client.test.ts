import { execFile } from 'node:child_process';
import { createServer } from 'node:http';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { DockerClient } from '../../../../src/engine/docker/docker-client.ts';

const NOWHERE = 'unix:///nowhere/docker.sock';

describe('the client of an engine', () => {
  afterEach(() => vi.unstubAllEnvs());

  it.each(['/var/run/docker.sock', 'tcp://host', 'ssh://host:22', 'https://host:2376', 'unix://'])(
    'refuses the address %s',
    (host) => {
      expect(() => new DockerClient(host)).toThrow(host);
    },
  );

  it('calls the configured engine, whatever the environment says', async () => {
    const server = createServer((_, response) => response.end('{"ID":"mine"}'));
    await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
    const address = server.address();
    const port = typeof address === 'object' ? address?.port : undefined;
    vi.stubEnv('DOCKER_HOST', 'tcp://127.0.0.1:9');
    vi.stubEnv('DOCKER_TLS_VERIFY', '1');
    const client = new DockerClient(`tcp://127.0.0.1:${port}`);
    expect(await client.ask((docker) => docker.info())).toEqual({ ID: 'mine' });
    await expect(new DockerClient(NOWHERE).ask((docker) => docker.info())).rejects.toThrow(
      /ENOENT \/nowhere\/docker.sock/,
    );
    server.close();
    server.closeAllConnections();
  });

  it('is not loaded before the first call', async () => {
    const engine = new URL('../../../../src/engine/docker/docker-engine.ts', import.meta.url);
    const script = `
      import { createRequire } from 'node:module';
      import { silentLog } from '${new URL('../../base/log.ts', engine)}';
      import { DockerEngine } from '${engine}';
      const loaded = () => Object.keys(createRequire(import.meta.url).cache).some((path) => /dockerode/.test(path));
      const engine = new DockerEngine({ platform: 'p', log: silentLog, host: '${NOWHERE}' });
      const before = loaded();
      await engine.list().catch(() => {});
      console.log(before, loaded());
    `;
    const run = ['--input-type=module-typescript', '--eval', script];
    const { stdout } = await promisify(execFile)(process.execPath, run, {
      cwd: new URL('.', pathToFileURL(import.meta.filename)),
    });
    expect(stdout.trim()).toBe('false true');
  });
});
