// Which carrier a worker's options name, and what of them cannot be.
import { generateKeyPairSync } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { parseOptions } from '../../../../src/cli/option-parser.ts';
import { listenerOptions, readGrpcPort } from '../../../../src/cli/options/listener-options.ts';
import { UsageError } from '../../../../src/cli/options.ts';
import { planLink } from '../../../../src/cli/worker/platform-link.ts';
import { workerFlags } from '../../../../src/cli/worker/worker-flags.ts';
import { CERTIFICATE, CERTIFICATE_KEY } from '../../../support/certificates.ts';

const folders: string[] = [];

afterEach(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true });
});

function writePem(text: string): string {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-pem-'));
  folders.push(folder);
  const path = join(folder, 'file.pem');
  writeFileSync(path, text);
  return path;
}

function plan(url: string, ...args: string[]) {
  const given = [`--url=${url}`, '--endpoint=e', '--key=k', ...args];
  return planLink(parseOptions(workerFlags, given).values);
}

describe('the carrier', () => {
  it.each([
    ['http://a:1', [], 'http'],
    ['https://a:1', [], 'http'],
    ['grpc://a:1', [], 'grpc'],
    ['GRPCS://a:1', [], 'grpc'],
    ['http://a:1', ['--link', 'grpc'], 'grpc'],
    ['https://a:1', ['--link', 'http'], 'http'],
    ['grpc://a:1', ['--link', 'grpc'], 'grpc'],
  ])('of %s with %j is %s', (url, args, carrier) => {
    expect(plan(url, ...args).carrier).toBe(carrier);
  });

  it.each([
    ['grpc://a:1', ['--link', 'http'], /--link http does not match --url, which is a grpc URL/],
    ['ftp://a:1', [], /--url: must be an http, https, grpc or grpcs URL/],
    ['grpc://', [], /--url: must be/],
    ['http://a:1', ['--link', 'pigeon'], /--link: must be one of http, grpc/],
  ])('of %s with %j is refused', (url, args, reason) => {
    expect(() => plan(url, ...args)).toThrow(UsageError);
    expect(() => plan(url, ...args)).toThrow(reason);
  });
});

const OTHER_KEY = String(
  generateKeyPairSync('ed25519').privateKey.export({ type: 'pkcs8', format: 'pem' }),
);

describe('the certificates of a worker', () => {
  it('are read from their files', () => {
    const [cert, key] = [writePem(CERTIFICATE), writePem(CERTIFICATE_KEY)];
    const args = ['--ca', cert, '--client-cert', cert, '--client-key', key];
    expect(plan('grpcs://a:1', ...args).tls).toEqual({
      ca: CERTIFICATE,
      cert: CERTIFICATE,
      key: CERTIFICATE_KEY,
    });
  });

  it.each(['http://a:1', 'GRPC://a:1'])('are refused for %s, which does not use them', (url) => {
    const path = writePem(CERTIFICATE);
    expect(() => plan(url, '--ca', path)).toThrow(/need TLS; --url must be an (http|grpc)s URL/);
  });

  it.each([
    ['--ca', CERTIFICATE_KEY, 'has a private key; name a file with a certificate'],
    ['--ca', '-----BEGIN CERTIFICATE REQUEST-----\n', 'has no certificate;'],
    ['--ca', CERTIFICATE.replace(/\n[^\n]+/, ''), 'has a certificate that cannot be used: error:'],
    ['--ca', 'none', 'is not a PEM file'],
    ['--client-cert', CERTIFICATE_KEY, 'has a private key;'],
    ['--client-key', CERTIFICATE, 'has a certificate; name a file with a private key'],
    ['--client-key', OTHER_KEY, 'is not the key of the certificate in '],
    ['--client-key', '-----BEGIN PRIVATE KEY-----\nnone', 'has a private key that cannot be used'],
  ])('of %s are refused if the file has something else', (option, text, problem) => {
    const paths = new Map([
      ['--client-cert', writePem(CERTIFICATE)],
      ['--client-key', writePem(CERTIFICATE_KEY)],
      [option, writePem(text)],
    ]);
    const refused = () => plan('grpcs://a:1', ...[...paths].flat());
    expect(refused).toThrow(UsageError);
    expect(refused).toThrow(`${option}: ${paths.get(option)} ${problem}`);
  });

  it('are a pair', () => {
    const path = writePem(CERTIFICATE);
    const alone = /--client-cert needs --client-key/;
    expect(() => plan('grpcs://a:1', '--client-cert', path)).toThrow(alone);
    const other = /--client-key needs --client-cert/;
    expect(() => plan('grpcs://a:1', '--client-key', path)).toThrow(other);
  });
});

describe('the gRPC port of a platform', () => {
  const none = parseOptions(listenerOptions, []).values;
  const tls = { cert: CERTIFICATE, key: CERTIFICATE_KEY };

  it('exists only on request', () => {
    expect(readGrpcPort(none, undefined)).toBeUndefined();
  });

  it('has the address and the certificate of the HTTP port', () => {
    const values = { ...none, grpcPort: 1 };
    expect(readGrpcPort(values, tls)).toMatchObject({ host: '127.0.0.1', port: 1, tls });
    expect(readGrpcPort({ ...values, grpcHost: '::' }, undefined)).toMatchObject({ host: '::' });
  });

  it('requires client certificates only with its own certificate', () => {
    const values = { ...none, grpcPort: 1, grpcClientCa: writePem(CERTIFICATE) };
    expect(() => readGrpcPort(values, undefined)).toThrow(/--grpc-client-ca needs --tls-cert/);
    expect(readGrpcPort(values, tls)?.tls).toEqual({ ...tls, clientCa: CERTIFICATE });
  });

  it('has limits for calls without a key, with defaults for missing ones', () => {
    const values = { ...none, grpcPort: 1 };
    const defaults = { calls: 100, watches: 100, bytes: 65_536, ms: 5_000 };
    expect(readGrpcPort(values, undefined)?.keylessLimits).toEqual(defaults);
    const given = { ...values, grpcKeylessLimits: 'calls=7, ms=100' };
    const limits = { ...defaults, calls: 7, ms: 100 };
    expect(readGrpcPort(given, undefined)?.keylessLimits).toEqual(limits);
    for (const wrong of ['', 'calls', 'calls=0', 'calls=-1', 'streams=1', 'calls=1;ms=2']) {
      const refused = { ...values, grpcKeylessLimits: wrong };
      expect(() => readGrpcPort(refused, undefined)).toThrow(
        /--grpc-keyless-limits: .* is invalid/,
      );
    }
  });

  it('is required by its other options', () => {
    expect(() => readGrpcPort({ ...none, grpcHost: '::' }, tls)).toThrow(
      /--grpc-host needs --grpc-port/,
    );
  });
});
