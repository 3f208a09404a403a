// A platform behind nginx with deploy/nginx-platform.conf: TLS, streams, long polls and large bodies of clients and workers.
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { request } from 'node:https';
import { json, text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { CERTIFICATE, CERTIFICATE_KEY } from '../support/certificates.ts';
import { findFreePort } from '../support/network/free-port.ts';
import { Workplace } from './cli/command-run.ts';

const isMissing = spawnSync('nginx', ['-v']).error !== undefined && !process.env['CI'];
if (isMissing) console.warn('reverse-proxy.test.ts is left out: nginx is not installed');

const HANDLER = `import { existsSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
export default async function* ({ input }) {
  yield input.text?.length ?? 'first';
  while (input.file && !existsSync(input.file)) await sleep(20);
  if (input.echo) yield input.text;
}`;

/** With nginx's own limits and folders. */
const OUTER = `pid nginx.pid;
events { worker_connections 64; }
http {
  access_log off;
  client_body_temp_path tmp/body;
  proxy_temp_path tmp/proxy;
  fastcgi_temp_path tmp/fastcgi;
  uwsgi_temp_path tmp/uwsgi;
  scgi_temp_path tmp/scgi;
  include site.conf;
}
`;

describe.skipIf(isMissing)('a platform behind nginx', () => {
  const place = new Workplace();
  let nginx: ChildProcess;
  let port: number;
  let platformPort: number;
  let key: string;

  beforeAll(async () => {
    [port, platformPort] = [await findFreePort(), await findFreePort()];
    place.write('cert.pem', CERTIFICATE);
    place.write('key.pem', CERTIFICATE_KEY);
    mkdirSync(place.path('tmp'));
    writeFileSync(place.path('nginx.conf'), OUTER);
    const printed = readFileSync('deploy/nginx-platform.conf', 'utf8');
    const site = printed
      .replace('listen 443 ssl', `listen 127.0.0.1:${port} ssl`)
      .replaceAll('/etc/millrace', place.folder)
      .replace('127.0.0.1:8000', `127.0.0.1:${platformPort}`);
    writeFileSync(place.path('site.conf'), site);
    nginx = startNginx();
    const options = ['--port', String(platformPort), '--data', 'data', '--endpoint', 'e'];
    const platform = place.start(['serve', ...options, '--trusted-proxy', '127.0.0.1']);
    key = await platform.until('stdout', /MILLRACE_ADMIN_KEY=(\S+)\n/);
    const workerKey = await platform.until('stdout', /MILLRACE_WORKER_KEY=(\S+)\n/);
    place.write('handler.mjs', HANDLER);
    const where = ['--url', `https://localhost:${port}`, '--ca', 'cert.pem', '--endpoint', 'e'];
    const worker = place.start(['worker', 'handler.mjs', ...where, '--key', workerKey]);
    await worker.until('stderr', /worker ready/);
  }, 120_000);

  afterAll(async () => {
    await place.close();
    const ended = once(nginx, 'exit');
    nginx.kill('SIGTERM');
    await ended;
  });

  const startNginx = () => {
    const files = ['-p', place.folder, '-c', place.path('nginx.conf'), '-e', 'stderr'];
    return spawn('nginx', [...files, '-g', 'daemon off;'], { stdio: 'ignore' });
  };

  const call = async (path: string, body?: unknown, headers = {}): Promise<IncomingMessage> => {
    const sent = request(`https://localhost:${port}${path}`, {
      ...{ ca: CERTIFICATE, method: body === undefined ? 'GET' : 'POST' },
      headers: { authorization: key, 'content-type': 'application/json', ...headers },
    });
    sent.end(body === undefined ? undefined : JSON.stringify(body));
    const [answer] = await once(sent, 'response');
    return answer;
  };

  it('passes each chunk of a stream on when it comes', async () => {
    const file = place.path('go');
    const submitted = await json(await call('/v2/e/run', { input: { file } }));
    const { id } = z.object({ id: z.string() }).parse(submitted);
    const events = await call(`/v2/e/stream/${id}`, undefined, { accept: 'text/event-stream' });
    let read = '';
    for await (const part of events) {
      read += String(part);
      // The job goes on only when its first chunk was read here.
      if (read.includes('"first"')) writeFileSync(file, '');
    }
    expect(read).toContain('"status":"COMPLETED"');
  });

  it('passes a large input and its output on', async () => {
    const input = { text: 'x'.repeat(9_000_000), echo: true };
    const answer = await call('/v2/e/runsync', { input });
    expect(answer.statusCode).toBe(200);
    expect(await json(answer)).toMatchObject({ output: [9_000_000, input.text] });
  });

  it('answers 413 itself', async () => {
    const answer = await call('/v2/e/run', { input: 'x'.repeat(11_000_000) });
    expect(answer.statusCode).toBe(413);
    expect(answer.headers['content-type']).toBe('application/problem+json');
  });

  it('learns that its client uses TLS', async () => {
    const answer = await call('/v1/session', { key });
    expect(answer.statusCode).toBe(201);
    expect(answer.headers['set-cookie']?.join()).toMatch(/; Secure/);
    // Past the proxy, the connection is plain.
    const direct = await fetch(`http://localhost:${platformPort}/v1/session`, {
      ...{ method: 'POST', body: JSON.stringify({ key }) },
      headers: { 'content-type': 'application/json' },
    });
    expect(direct.headers.get('set-cookie')).not.toMatch(/; Secure/);
  });

  it('is called again by its workers after a restart of nginx', async () => {
    const ended = once(nginx, 'exit');
    nginx.kill('SIGTERM');
    await ended;
    await sleep(100);
    nginx = startNginx();
    await expect
      .poll(async () => (await call('/healthz').catch(() => undefined))?.statusCode, {
        timeout: 30_000,
      })
      .toBe(200);
    const answer = await call('/v2/e/runsync?wait=60000', { input: {} });
    expect(await text(answer)).toContain('"COMPLETED"');
  });
});
