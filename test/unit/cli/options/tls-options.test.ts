// A renewed certificate is taken without a restart, over HTTPS and gRPC; a broken one changes nothing.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect } from 'node:tls';
import { expect, it, onTestFinished } from 'vitest';
import { createLog, silentLog } from '../../../../src/base/log.ts';
import { CertificateFiles, readTls } from '../../../../src/cli/options/tls-options.ts';
import { openPlatform } from '../../../../src/platform/platform.ts';
import { Authority } from '../../../support/certificates.ts';

/** The host name in the certificate that the port shows. */
function readName(url: string | undefined, ca: string): Promise<unknown> {
  const { port } = new URL((url ?? '').replace('grpcs', 'https'));
  return new Promise((resolve, reject) => {
    const options = {
      port: Number(port),
      host: '127.0.0.1',
      ca,
      ALPNProtocols: ['h2', 'http/1.1'],
    };
    const socket = connect({ ...options, checkServerIdentity: () => undefined }, () => {
      resolve(socket.getPeerCertificate().subject.CN);
      socket.destroy();
    }).on('error', reject);
  });
}

it('a renewed certificate is used for new connections', async () => {
  const authority = new Authority();
  const folder = mkdtempSync(join(tmpdir(), 'millrace-tls-'));
  const values = { tlsCert: join(folder, 'cert.pem'), tlsKey: join(folder, 'key.pem') };
  const write = (pair: { cert?: string; key?: string }) => {
    if (pair.cert !== undefined) writeFileSync(values.tlsCert, pair.cert);
    if (pair.key !== undefined) writeFileSync(values.tlsKey, pair.key);
  };
  write(authority.sign('first.test'));
  const tls = readTls(values);
  const platform = await openPlatform({
    ...{ host: '127.0.0.1', port: 0, tls, log: silentLog, grpc: { port: 0 } },
  });
  onTestFinished(async () => {
    await platform.close();
    rmSync(folder, { recursive: true });
    authority.remove();
  });
  const ca = readFileSync(authority.path, 'utf8');
  const names = async () => [
    await readName(platform.url, ca),
    await readName(platform.grpcUrl, ca),
  ];
  const logged: string[] = [];
  const log = createLog({ destination: { write: (line) => logged.push(line) } });
  const files = new CertificateFiles(values, log);
  const lookTwice = () => {
    files.look(platform.useCertificate);
    files.look(platform.useCertificate);
  };

  lookTwice();
  expect(await names()).toEqual(['first.test', 'first.test']);
  const second = authority.sign('second.test');
  write({ cert: second.cert });
  lookTwice();
  expect(await names()).toEqual(['first.test', 'first.test']);
  expect(logged.at(-1)).toContain('is not the key of the certificate');
  write({ key: second.key });
  files.look(platform.useCertificate);
  expect(await names()).toEqual(['first.test', 'first.test']);
  files.look(platform.useCertificate);
  expect(await names()).toEqual(['second.test', 'second.test']);
  rmSync(values.tlsKey);
  lookTwice();
  lookTwice();
  expect(await names()).toEqual(['second.test', 'second.test']);
  expect(logged).toHaveLength(3);
});
