// Workers and commands as processes, in a network where only a proxy knows where the platform's name leads.
import { afterEach, beforeEach, expect, it } from 'vitest';
import { Authority } from '../support/certificates.ts';
import { type ForwardProxy, startForwardProxy } from '../support/network/forward-proxy.ts';
import { Workplace } from './cli/command-run.ts';

let place: Workplace;
let authority: Authority;
let proxy: ForwardProxy | undefined;

beforeEach(() => {
  place = new Workplace();
  authority = new Authority();
});

afterEach(async () => {
  await place.close();
  await proxy?.close();
  authority.remove();
});

it('lets workers over HTTP and gRPC and commands reach the platform', async () => {
  const { cert, key } = authority.sign('platform.test', 'localhost');
  place.write('cert.pem', cert);
  place.write('key.pem', key);
  place.write('echo.mjs', 'export default (job) => job.input;');
  const ports = ['--port', '0', '--grpc-port', '0'];
  const tls = ['--tls-cert', 'cert.pem', '--tls-key', 'key.pem'];
  const serve = place.start(['serve', ...ports, ...tls, '--data', 'data', '--endpoint', 'echo']);
  const httpUrl = await serve.until('stdout', /is ready at (\S+)\n/);
  const grpcUrl = await serve.until('stdout', /Workers over gRPC at (\S+)/);
  const adminKey = await serve.until('stdout', /MILLRACE_ADMIN_KEY=(\S+)\n/);
  const workerKey = await serve.until('stdout', /MILLRACE_WORKER_KEY=(\S+)\n/);
  proxy = await startForwardProxy({
    ports: {
      'platform.test:443': Number(new URL(httpUrl).port),
      'platform.test:9443': Number(new URL(grpcUrl.replace('grpcs', 'https')).port),
    },
  });
  const env = { HTTPS_PROXY: proxy.url, NODE_EXTRA_CA_CERTS: authority.path };
  for (const url of ['https://platform.test', 'grpcs://platform.test:9443']) {
    const where = ['--url', url, '--endpoint', 'echo', '--key', workerKey];
    const worker = place.start(['worker', 'echo.mjs', ...where, '--ca', authority.path], { env });
    await worker.until('stderr', /worker ready/);
    const target = [
      '--url',
      'https://platform.test',
      '--key',
      adminKey,
      '--endpoint',
      'echo',
      '--wait',
    ];
    const run = await place.run(['jobs', 'submit', '--input', '{"n":1}', ...target], { env });
    expect(run).toMatchObject({ code: 0, stdout: expect.stringContaining('1') });
    await worker.end('SIGTERM');
  }
  expect(new Set(proxy.seen)).toEqual(
    new Set(['CONNECT platform.test:443', 'CONNECT platform.test:9443']),
  );
});

it('names the proxy that does not reach the platform', async () => {
  proxy = await startForwardProxy({ ports: {} });
  const env = { HTTPS_PROXY: proxy.url, MILLRACE_KEY: 'mr_k' };
  const { code, stderr } = await place.run(['endpoints', 'list', '--url', 'https://a.test'], {
    env,
  });
  expect(code).toBe(1);
  expect(stderr).toContain(`https://a.test does not respond:`);
  expect(stderr).toContain(`, through the proxy ${proxy.url}`);
});
