// What `millrace dev` prints when it is ready.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { renderBanner } from '../../../../src/cli/dev/dev-banner.ts';

describe('the banner', () => {
  let folder: string;
  let still: string;
  let stream: string;
  const schema = {
    type: 'object',
    required: ['n'],
    properties: { n: { type: 'integer', minimum: 5 } },
  };

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
        { endpointId: 'still', file: still, isServed: true, schema: null },
        { endpointId: 'stream', file: stream, isServed: true, schema: null },
        { endpointId: 'broken', file: join(folder, 'gone.ts'), isServed: false, schema },
      ],
    });
  }

  it('contains a command for each endpoint, with its input quoted for the shell', () => {
    expect(render()).toContain(
      `curl -s http://127.0.0.1:8000/v2/still/runsync -H 'Content-Type: application/json' ` +
        String.raw`-d '{"input":{"text":"it'\''s"}}'`,
    );
  });

  it('makes the input from the schema of a handler without an example', () => {
    expect(render()).toContain(`-d '{"input":{"n":5}}'`);
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
