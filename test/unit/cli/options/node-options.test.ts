// Which flags go together with --node-url.
import { expect, it } from 'vitest';
import { parseOptions } from '../../../../src/cli/option-parser.ts';
import { nodeOptions, readNodes } from '../../../../src/cli/options/node-options.ts';
import { text } from '../../../../src/cli/options.ts';

const options = {
  ...nodeOptions,
  store: text({ help: 'database' }),
  webhookSecretFile: text({ help: 'file' }),
};
const read = (...args: string[]) => readNodes(parseOptions(options, args).values);

it('names all flags that are missing at once, and what writes the secrets', () => {
  expect(() => read('--node-url', 'http://10.0.0.5:8091')).toThrow(
    '--node-url needs --store, --node-secret-file and --webhook-secret-file; `millrace nodes init` writes the secrets',
  );
  const more = ['--store', 'postgres://db/m', '--node-secret-file', 'secret'];
  expect(() => read('--node-url', 'http://10.0.0.5:8091', ...more)).toThrow(
    '--node-url needs --webhook-secret-file; ',
  );
});

it('names all flags that need --node-url', () => {
  expect(() => read('--shards', '4')).toThrow('--shards needs --node-url');
  expect(() => read('--shards', '4', '--advertise-url', 'https://a')).toThrow(
    '--shards and --advertise-url need --node-url',
  );
  expect(read('--store', 'postgres://db/m')).toBeUndefined();
});
