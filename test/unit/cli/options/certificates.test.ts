// Renewed certificates need no restart: of the platform, of the authorities of its gRPC clients, and of workers. Broken
// files change nothing.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect } from 'node:tls';
import { expect, it, onTestFinished, vi } from 'vitest';
import { createLog, silentLog } from '../../../../src/base/log.ts';
import { parseOptions } from '../../../../src/cli/option-parser.ts';
import { CertificateFiles } from '../../../../src/cli/options/certificates.ts';
import { readTls } from '../../../../src/cli/options/listener-options.ts';
import { openLink } from '../../../../src/cli/worker/platform-link.ts';
import { workerFlags } from '../../../../src/cli/worker/worker-flags.ts';
import { openPlatform } from '../../../../src/platform/platform.ts';
import { Authority, type Certificate } from '../../../support/certificates.ts';

/** The host name in the certificate that the port shows; rejects if the port refuses the client's certificate. */
function readName(url: string | undefined, ca: string, own?: Certificate): Promise<unknown> {
  const { port } = new URL((url ?? '').replace('grpcs', 'https'));
  return new Promise((resolve, reject) => {
    const options = {
      port: Number(port),
      host: '127.0.0.1',
      ca,
      ALPNProtocols: ['h2', 'http/1.1'],
      ...own,
    };
    const socket = connect({ ...options, checkServerIdentity: () => undefined });
    // Servers judge the client's certificate after the handshake, and speak first on HTTP/2.
    socket.once(own === undefined ? 'secureConnect' : 'data', () => {
      resolve(socket.getPeerCertificate().subject.CN);
      socket.destroy();
    });
    socket.on('error', reject).on('close', () => reject(new Error('closed')));
  });
}

function makeFolder(): (name: string, text: string) => string {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-tls-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  return (name, text) => {
    writeFileSync(join(folder, name), text);
    return join(folder, name);
  };
}

function makeAuthority() {
  const authority = new Authority();
  onTestFinished(() => authority.remove());
  return { authority, ca: readFileSync(authority.path, 'utf8') };
}

it('uses a renewed certificate for new connections', async () => {
  const { authority, ca } = makeAuthority();
  const write = makeFolder();
  const first = authority.sign('first.test');
  const values = { tlsCert: write('cert.pem', first.cert), tlsKey: write('key.pem', first.key) };
  const tls = readTls(values);
  const platform = await openPlatform({
    ...{ host: '127.0.0.1', port: 0, tls, log: silentLog, grpc: { port: 0 } },
  });
  onTestFinished(() => platform.close());
  const names = async () => [
    await readName(platform.url, ca),
    await readName(platform.grpcUrl, ca),
  ];
  const logged: string[] = [];
  const log = createLog({ destination: { write: (line) => logged.push(line) } });
  const files = new CertificateFiles(Object.values(values), log);
  const look = () => {
    files.look(() => {
      const renewed = readTls(values);
      if (renewed) platform.useCertificate(renewed);
    });
  };
  const lookTwice = () => {
    look();
    look();
  };

  lookTwice();
  expect(await names()).toEqual(['first.test', 'first.test']);
  const second = authority.sign('second.test');
  write('cert.pem', second.cert);
  lookTwice();
  expect(await names()).toEqual(['first.test', 'first.test']);
  expect(logged.at(-1)).toContain('is not the key of the certificate');
  write('key.pem', second.key);
  look();
  expect(await names()).toEqual(['first.test', 'first.test']);
  look();
  expect(await names()).toEqual(['second.test', 'second.test']);
  rmSync(values.tlsKey);
  lookTwice();
  lookTwice();
  expect(await names()).toEqual(['second.test', 'second.test']);
  expect(logged).toHaveLength(3);
});

it('uses renewed authorities of gRPC clients for new connections', async () => {
  const { authority, ca } = makeAuthority();
  const next = makeAuthority();
  const [own, before, after] = [authority, authority, next.authority].map((one) =>
    one.sign('localhost'),
  );
  if (!own || !before || !after) throw new Error('no certificates');
  const platform = await openPlatform({
    ...{ host: '127.0.0.1', port: 0, tls: own, log: silentLog },
    grpc: { port: 0, tls: { ...own, clientCa: ca } },
  });
  onTestFinished(() => platform.close());
  const show = (client: Certificate) => readName(platform.grpcUrl, ca, client);

  expect(await show(before)).toBe('localhost');
  await expect(show(after)).rejects.toThrow();
  platform.useCertificate({ ...own, clientCa: next.ca });
  expect(await show(after)).toBe('localhost');
  await expect(show(before)).rejects.toThrow();
  // A renewed certificate alone keeps the authorities.
  platform.useCertificate(own);
  expect(await show(after)).toBe('localhost');
  await expect(show(before)).rejects.toThrow();
});

const hello = {
  ...{ workerId: 'w', incarnation: 1, protocol: 1, version: '0', slots: 1 },
  ...{ devices: [], outbox: [] },
};

function openFor(url: string, files: { ca: string; cert: string; key: string }) {
  const { ca, cert, key } = files;
  const args = [`--ca=${ca}`, `--client-cert=${cert}`, `--client-key=${key}`];
  const given = [`--url=${url}`, '--endpoint=e', '--key=k', ...args];
  return openLink(parseOptions(workerFlags, given).values, silentLog);
}

/** The time of two looks at the files. */
const SETTLED_MS = 4_000;

it.each(['https', 'grpcs'])('shows the renewed certificate of a worker over %s', async (scheme) => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  onTestFinished(() => {
    vi.useRealTimers();
  });
  const { authority, ca } = makeAuthority();
  const write = makeFolder();
  const [own, first] = [authority.sign('localhost'), authority.sign('first.test')];
  const shown: unknown[] = [];
  const server = createServer({ ...own, ca, requestCert: true, ALPNProtocols: ['h2', 'http/1.1'] });
  server.on('secureConnection', (socket) => {
    shown.push(socket.getPeerCertificate().subject.CN);
    // A gRPC client reconnects for its next call.
    if (scheme === 'grpcs') socket.destroy();
  });
  server.on('request', (_request, response) => response.end('{}'));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  const link = await openFor(`${scheme}://localhost:${port}`, {
    ca: write('ca.pem', ca),
    cert: write('cert.pem', first.cert),
    key: write('key.pem', first.key),
  });
  onTestFinished(() => link.close());
  const call = () => link.hello(hello).catch(() => {});

  await call();
  expect(new Set(shown)).toEqual(new Set(['first.test']));
  const second = authority.sign('second.test');
  write('cert.pem', second.cert);
  vi.advanceTimersByTime(SETTLED_MS);
  await call();
  expect(shown).not.toContain('second.test');
  write('key.pem', second.key);
  vi.advanceTimersByTime(SETTLED_MS);
  // A gRPC call may end with an attempt to connect that began before.
  while (!shown.includes('second.test')) await call();
  await link.close();
  expect(vi.getTimerCount()).toBe(0);
});
