import { expect, it } from 'vitest';
import { CommandError, EXIT } from '../../../../src/cli/command.ts';
import { explainPlatformError } from '../../../../src/cli/options/platform-flags.ts';
import { serveOptions } from '../../../../src/cli/options/serve-options.ts';
import { UsageError } from '../../../../src/cli/options.ts';
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

it('options that the problem names are named by their flags too', () => {
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
