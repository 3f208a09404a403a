// What `millrace dev` prints when it is ready.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { readExampleInput, renderBanner } from '../../../../src/cli/dev/dev-banner.ts';

describe('the example input', () => {
  it('is the first line of the opening comment that is a JSON object', () => {
    const source = '// Says hello.\n//\n//   { "name": "you" }\n//   { "name": "me" }\ncode();\n';
    expect(readExampleInput(source)).toEqual({ name: 'you' });
  });

  it('is found in a block comment, without the text after an arrow', () => {
    const source = '/**\n * Says hello.\n *   { "a": 1 } → { "b": 2 }\n */\n';
    expect(readExampleInput(source)).toEqual({ a: 1 });
  });

  it('is an empty object if the opening comment has none', () => {
    expect(readExampleInput('// { not JSON }\n// [1]\n')).toEqual({});
    expect(readExampleInput('code();\n// { "a": 1 }\n')).toEqual({});
    expect(readExampleInput('')).toEqual({});
  });
});

describe('the banner', () => {
  let folder: string;
  let still: string;
  let stream: string;

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'millrace-banner-'));
    still = join(folder, 'still.ts');
    stream = join(folder, 'stream.ts');
    await writeFile(still, `// { "text": "it's" }\n`);
    await writeFile(stream, '// { "n": 1 }\nyield 1;\n');
  });

  afterEach(() => rm(folder, { recursive: true }));

  function render(key?: string): string {
    return renderBanner({
      version: '1.2.3',
      url: 'http://127.0.0.1:8000',
      key,
      dataNote: 'Jobs are kept in /data',
      endpoints: [
        { endpointId: 'still', file: still, isServed: true },
        { endpointId: 'stream', file: stream, isServed: true },
        { endpointId: 'broken', file: join(folder, 'gone.ts'), isServed: false },
      ],
    });
  }

  it('contains a command for each endpoint, with its input quoted for the shell', () => {
    expect(render()).toContain(
      `curl -s http://127.0.0.1:8000/v2/still/runsync -H 'Content-Type: application/json' ` +
        String.raw`-d '{"input":{"text":"it'\''s"}}'`,
    );
  });

  it('shows the stream route of a streaming handler', () => {
    expect(render()).toMatch(/Accept: text\/event-stream.*\/v2\/stream\/stream\/\$\(curl/);
  });

  it('names the endpoint without a worker', () => {
    expect(render()).toMatch(/^broken .*no worker/m);
    expect(render()).not.toMatch(/^still .*no worker/m);
  });

  it('contains the key in every command if one is needed', () => {
    const withKey = render('mr_key').split('\n');
    for (const line of withKey.filter((each) => each.includes('curl'))) {
      expect(line).toContain("-H 'Authorization: Bearer mr_key'");
    }
    expect(render()).not.toContain('Authorization');
  });
});
