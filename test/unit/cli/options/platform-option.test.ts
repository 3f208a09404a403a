import { describe, expect, it } from 'vitest';
import { CommandError, EXIT } from '../../../../src/cli/command.ts';
import { parseOptions } from '../../../../src/cli/option-parser.ts';
import {
  composeMembers,
  explainPlatformError,
  mbInBytes,
  member,
} from '../../../../src/cli/options/platform-option.ts';
import { serveOptions } from '../../../../src/cli/options/serve-options.ts';
import { integer, text, UsageError } from '../../../../src/cli/options.ts';
import { PlatformOptionError } from '../../../../src/platform/option-error.ts';

it('reports an invalid option of the platform as a usage error of its flag', () => {
  const error = new PlatformOptionError('invalid', 'keyFile', 'keys has no worker key');
  expect(explainPlatformError(error, serveOptions)).toEqual(
    new UsageError('--key-file: keys has no worker key'),
  );
});

it('fails the command for an option that this machine cannot use', () => {
  const error = new PlatformOptionError('unusable', 'port', '80 on 127.0.0.1 is not permitted');
  const explained = explainPlatformError(error, serveOptions);
  expect(explained).toEqual(new CommandError('--port: 80 on 127.0.0.1 is not permitted'));
  expect(explained).toMatchObject({ exitCode: EXIT.failed });
});

it('names options that the problem names by their flags too', () => {
  const problem = 'it cannot be read; run pods as root with `compute.podUser` root, see `docs`';
  const error = new PlatformOptionError('invalid', 'compute.podUser', problem);
  expect(explainPlatformError(error, serveOptions)).toMatchObject({
    message: '--pod-user: it cannot be read; run pods as root with --pod-user root, see `docs`',
  });
});

it('leaves other errors unchanged', () => {
  const error = new Error('broken');
  expect(explainPlatformError(error, serveOptions)).toBe(error);
});

it('needs only options of the same command', () => {
  const needed = Object.values(serveOptions).flatMap(({ needs }) => needs ?? []);
  expect(Object.keys(serveOptions)).toEqual(expect.arrayContaining(needed));
});

describe('a member that an option sets', () => {
  const options = {
    nodeUrl: text({ help: 'URL' }),
    depth: integer({ min: 1, max: 9, help: 'depth', sets: [member('bounds.maxJsonDepth')] }),
    pages: integer({
      min: 1,
      max: 9,
      help: 'MB',
      sets: [member('listBytes', mbInBytes)],
      default: 2,
    }),
    shards: integer({
      min: 1,
      max: 9,
      help: 'N',
      needs: 'nodeUrl',
      sets: [member('nodes.shards')],
    }),
  };
  const compose = (...args: string[]) =>
    composeMembers(options, parseOptions(options, args).values);

  it('has the value, in its own unit', () => {
    expect(compose('--depth=3')).toEqual({ bounds: { maxJsonDepth: 3 }, listBytes: 2_097_152 });
  });

  it('is left out without a value, or without the option that this one needs', () => {
    expect(compose()).toEqual({ listBytes: 2_097_152 });
    expect(() => compose('--shards=3')).toThrow('--shards needs --node-url');
    expect(compose('--shards=3', '--node-url=http://a')).toMatchObject({ nodes: { shards: 3 } });
  });

  it('must have the type of the value', () => {
    // @ts-expect-error: a number for a text
    integer({ min: 1, max: 9, help: 'N', sets: [member('host')] });
    // @ts-expect-error: no such member
    text({ help: 'N', sets: [member('hots')] });
    // @ts-expect-error: the number in another form
    integer({ min: 1, max: 9, help: 'N', sets: [member('console', mbInBytes)] });
  });
});
