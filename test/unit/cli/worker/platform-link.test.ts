// Which carrier a worker's options name, and what of them cannot be.
import { generateKeyPairSync } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { parseOptions } from '../../../../src/cli/option-parser.ts';
import { listenerOptions, readGrpcTls } from '../../../../src/cli/options/listener-options.ts';
import { composeMembers } from '../../../../src/cli/options/platform-option.ts';
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
  ])('is refused for %s with %j', (url, args, reason) => {
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
  ])('are refused for %s if the file has something else', (option, text, problem) => {
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
  const parse = (...args: string[]) => parseOptions(listenerOptions, args).values;
  const compose = (...args: string[]) => composeMembers(listenerOptions, parse(...args)).grpc;

  it('exists only on request', () => {
    expect(compose()).toBeUndefined();
    expect(compose('--grpc-port=1', '--grpc-host=::')).toMatchObject({ port: 1, host: '::' });
  });

  it('requires client certificates only with its own certificate', () => {
    const values = parse('--grpc-port=1', '--grpc-client-ca', writePem(CERTIFICATE));
    const tls = { cert: CERTIFICATE, key: CERTIFICATE_KEY };
    expect(() => readGrpcTls(values, undefined)).toThrow(/--grpc-client-ca needs --tls-cert/);
    expect(readGrpcTls(values, tls)).toEqual({ ...tls, clientCa: CERTIFICATE });
    expect(readGrpcTls(parse('--grpc-port=1'), tls)).toEqual(tls);
  });

  it('has limits for calls without a key, with defaults for missing ones', () => {
    const defaults = { calls: 100, watches: 100, bytes: 65_536, ms: 5_000 };
    expect(compose('--grpc-port=1')?.keylessLimits).toEqual(defaults);
    const given = compose('--grpc-port=1', '--grpc-keyless-limits=calls=7, ms=100');
    expect(given?.keylessLimits).toEqual({ ...defaults, calls: 7, ms: 100 });
    for (const wrong of [' ', 'calls', 'calls=0', 'calls=-1', 'streams=1', 'calls=1;ms=2']) {
      expect(() => compose('--grpc-port=1', `--grpc-keyless-limits=${wrong}`)).toThrow(
        /--grpc-keyless-limits: .* is invalid/,
      );
    }
  });

  it('is required by its other options', () => {
    expect(() => parse('--grpc-host=::')).toThrow(/--grpc-host needs --grpc-port/);
  });
});
