// Which variables the workers of endpoints get from `serve`.
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { readWorkerEnvironment } from '../../../../src/cli/options/engine-options.ts';

beforeEach(() => {
  vi.stubEnv('PATH', '/home/ada/venv/bin:/usr/bin');
  vi.stubEnv('HF_HOME', '/models');
  vi.stubEnv('UNSET', undefined);
  vi.stubEnv('NODE_EXTRA_CA_CERTS', undefined);
});

afterEach(() => {
  vi.unstubAllEnvs();
});

it('hands on which certificates Node trusts', () => {
  vi.stubEnv('NODE_EXTRA_CA_CERTS', '/ca.pem');
  expect(readWorkerEnvironment([])).toMatchObject({ NODE_EXTRA_CA_CERTS: '/ca.pem' });
});

it('reads the PATH, and the variables that --worker-env names', () => {
  const PATH = '/home/ada/venv/bin:/usr/bin';
  expect(readWorkerEnvironment([])).toEqual({ PATH });
  expect(readWorkerEnvironment(['HF_HOME', 'A=b=c', 'EMPTY='])).toEqual({
    ...{ PATH, HF_HOME: '/models', A: 'b=c', EMPTY: '' },
  });
  expect(readWorkerEnvironment(['PATH=/opt'])).toEqual({ PATH: '/opt' });
});

it.each([
  ['=x', '--worker-env: must be NAME or NAME=VALUE, got "=x"'],
  ['UNSET', '--worker-env: UNSET is not set; give UNSET=VALUE'],
  ['MILLRACE_KEY', '--worker-env: MILLRACE_KEY belongs to Millrace'],
])('refuses %s', (given, message) => {
  expect(() => readWorkerEnvironment([given])).toThrow(message);
});
