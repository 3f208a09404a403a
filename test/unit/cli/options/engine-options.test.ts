import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { parseOptions } from '../../../../src/cli/option-parser.ts';
import { containmentOptions, engineOptions } from '../../../../src/cli/options/engine-options.ts';
import { composeMembers } from '../../../../src/cli/options/platform-option.ts';
import { DEFAULT_CONTAINMENT } from '../../../../src/engine/containment.ts';

const options = { ...engineOptions, ...containmentOptions };

function compose(...args: string[]) {
  return composeMembers(options, parseOptions(options, args).values).compute;
}

const readWorkerEnvironment = (given: readonly string[]) =>
  compose(...given.map((each) => `--worker-env=${each}`))?.workerEnvironment;

describe('the permissions of containers', () => {
  it('is the default without an option', () => {
    expect(compose()?.containment).toEqual(DEFAULT_CONTAINMENT);
  });

  it.each([
    ['engine', 'engine'],
    ['none', []],
    ['cap_kill, NET_RAW', ['KILL', 'NET_RAW']],
    ['usual,SYS_CHROOT', [...DEFAULT_CONTAINMENT.capabilities, 'SYS_CHROOT']],
  ])('has the capabilities that %s names', (given, capabilities) => {
    const containment = compose(`--container-capabilities=${given}`)?.containment;
    expect(containment?.capabilities).toEqual(capabilities);
  });

  it.each(['KILL,', 'kill;reboot', '1'])('is refused for %s', (given) => {
    expect(() => compose(`--container-capabilities=${given}`)).toThrow('--container-capabilities');
  });
});

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
