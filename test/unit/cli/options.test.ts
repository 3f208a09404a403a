// Arguments become values by the option tables, and errors name the option.
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { asksForHelp, parseOptions } from '../../../src/cli/option-parser.ts';
import {
  choice,
  flag,
  flagName,
  integer,
  list,
  rate,
  requiredText,
  text,
} from '../../../src/cli/options.ts';

const table = {
  port: integer({ min: 0, max: 65_535, default: 8_000, env: 'TEST_CLI_PORT', help: 'port' }),
  host: text({ default: 'localhost', help: 'host' }),
  note: text({ help: 'note' }),
  endpoint: list({ placeholder: 'NAME', env: 'TEST_CLI_ENDPOINTS', help: 'endpoint' }),
  logLevel: choice({ choices: ['info', 'warn'], default: 'info', help: 'level' }),
  json: flag({ env: 'TEST_CLI_JSON', help: 'json' }),
};

const variables = ['TEST_CLI_PORT', 'TEST_CLI_ENDPOINTS', 'TEST_CLI_JSON', 'TEST_CLI_KEY'];

function clearVariables(): void {
  for (const name of variables) delete process.env[name];
}

beforeEach(clearVariables);
afterEach(clearVariables);

function parse(...args: string[]) {
  return parseOptions(table, args);
}

describe('a rate', () => {
  const rates = { rate: rate({ help: 'rate' }) };

  it.each([
    ['100/1m', { max: 100, perMs: 60_000 }],
    ['5/s', { max: 5, perMs: 1_000 }],
    ['1/500ms', { max: 1, perMs: 500 }],
    ['7/2d', { max: 7, perMs: 172_800_000 }],
  ])('of %s is %o', (given, value) => {
    expect(parseOptions(rates, ['--rate', given]).values.rate).toEqual(value);
  });

  it.each(['5', '5/', '/s', '5/1w', '-1/s', '1.5/s'])('of %s is refused', (given) => {
    expect(() => parseOptions(rates, [`--rate=${given}`])).toThrow('must be MAX/TIME');
  });
});

describe('values', () => {
  it('are the defaults if nothing is given', () => {
    const expected = { port: 8_000, host: 'localhost', note: undefined, endpoint: [] };
    expect(parse().values).toEqual({ ...expected, logLevel: 'info', json: false });
  });

  it('come from flags, with a space or an equals sign', () => {
    const { values } = parse('--port', '1', '--host=::1', '--log-level', 'warn', '--json');
    expect(values).toMatchObject({ port: 1, host: '::1', logLevel: 'warn', json: true });
  });

  it('come from the environment without a flag', () => {
    process.env['TEST_CLI_PORT'] = '7';
    process.env['TEST_CLI_ENDPOINTS'] = 'a,b';
    process.env['TEST_CLI_JSON'] = '1';
    expect(parse().values).toMatchObject({ port: 7, endpoint: ['a', 'b'], json: true });
  });

  it('come from the flag if both are given', () => {
    process.env['TEST_CLI_PORT'] = '7';
    expect(parse('--port', '9').values.port).toBe(9);
  });

  it('count as missing if their variable is empty', () => {
    process.env['TEST_CLI_PORT'] = '';
    expect(parse().values.port).toBe(8_000);
  });

  it('may be false for the variable of a flag', () => {
    process.env['TEST_CLI_JSON'] = 'false';
    expect(parse().values.json).toBe(false);
  });

  it('are all given values of a list, in order', () => {
    expect(parse('--endpoint', 'b', '--endpoint=a').values.endpoint).toEqual(['b', 'a']);
  });

  it('are the last given value of other options', () => {
    expect(parse('--port', '1', '--port', '2').values.port).toBe(2);
  });

  it('leave other words as arguments, including a lone - and everything after --', () => {
    expect(parse('a', '-', '--json', '--', '--port').positionals).toEqual(['a', '-', '--port']);
  });
});

describe('errors name the option', () => {
  it.each([
    [['--port', 'x'], '--port: must be a whole number from 0 to 65535, got "x"'],
    [['--port', '65536'], '--port: must be a whole number from 0 to 65535, got "65536"'],
    [['--port=-1'], '--port: must be a whole number from 0 to 65535, got "-1"'],
    [['--port', '1.5'], '--port: must be a whole number from 0 to 65535, got "1.5"'],
    [
      ['--port', '9007199254740993'],
      '--port: must be a whole number from 0 to 65535, got "9007199254740993"',
    ],
    [['--port'], '--port: value missing'],
    [['--host', '--json'], '--host: value missing; if --json is the value, write --host=--json'],
    [['--host='], '--host: must not be empty'],
    [['--log-level', 'loud'], '--log-level: must be one of info, warn, got "loud"'],
    [['--json=yes'], '--json takes no value'],
    [['--logLevel', 'info'], '--logLevel: unknown option'],
    [['--toString'], '--toString: unknown option'],
    [['-p', '1'], '-p: unknown option'],
  ])('%j: %s', (args, message) => {
    const error = expect.objectContaining({ name: 'UsageError', message });
    expect(() => parse(...args)).toThrow(error);
  });

  it('or the variable of the value', () => {
    process.env['TEST_CLI_PORT'] = 'x';
    expect(() => parse()).toThrow('TEST_CLI_PORT: must be a whole number from 0 to 65535, got "x"');
  });

  it('and the alternative variable', () => {
    const key = requiredText({ placeholder: 'KEY', env: 'TEST_CLI_KEY', help: 'key' });
    expect(() => parseOptions({ key }, [])).toThrow(
      '--key KEY is required (or TEST_CLI_KEY in the environment)',
    );
  });
});

it('spells flags with hyphens', () => {
  expect(flagName('jobsPerThread')).toBe('--jobs-per-thread');
});

describe('help is requested', () => {
  it.each([['--help'], ['-h'], ['x', '--help']])('by %j %j', (...args) => {
    expect(asksForHelp(args)).toBe(true);
  });

  it('but not after --', () => {
    expect(asksForHelp(['--', '--help'])).toBe(false);
  });
});
