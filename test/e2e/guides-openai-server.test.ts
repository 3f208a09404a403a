// Follows docs/guides/openai-server.md: its commands as printed, except for the port, with OpenAI's own client.
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import OpenAI, { NotFoundError } from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readCommandLine, readProcesses } from '../../src/base/process/process-table.ts';
import { killPods } from '../support/containers/left-pods.ts';
import { readCodeBlocks, runCommandLine } from '../support/printed-commands.ts';
import { Process } from '../support/processes.ts';
import { leaveOutWithoutPython } from '../support/python.ts';

const PRINTED_URL = 'http://127.0.0.1:8000';
const blocks = await readCodeBlocks('docs/guides/openai-server.md');
const lines = blocks
  .filter(({ language }) => language === '')
  .flatMap(({ text }) => text.trim().split('\n'));
const isLeftOut = leaveOutWithoutPython('test/e2e/guides-openai-server.test.ts');

describe.skipIf(isLeftOut)('the guide to servers with the OpenAI API', () => {
  let folder: string;
  let platform: Process;
  let url: string;
  let key: string;

  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'millrace-guide-'));
    mkdirSync(join(folder, 'node_modules'));
    symlinkSync(resolve('.'), join(folder, 'node_modules/millrace'));
    for (const name of ['zod', 'openai']) {
      symlinkSync(resolve('node_modules', name), join(folder, 'node_modules', name));
    }
    writeFileSync(join(folder, 'package.json'), '{ "type": "module" }');
    for (const { text } of blocks) {
      const name = /^(?:#|\/\/) (\S+\.(?:py|ts))\n/.exec(text)?.[1];
      if (name !== undefined) writeFileSync(join(folder, name), text);
    }
    expect(lines).toContain('npx millrace serve --key-file keys');
    const args = ['serve', '--key-file', 'keys', '--port', '0'];
    const env = { XDG_CONFIG_HOME: folder, TMPDIR: folder };
    platform = new Process(args, { cwd: folder, env });
    url = await platform.find(/ready at (http:\/\/127\.0\.0\.1:\d+)/);
    key = (await run(lineWith('export MILLRACE_KEY'), 'echo $MILLRACE_KEY')).trim();
  });

  afterAll(async () => {
    await platform.end();
    killPods(folder);
    rmSync(folder, { recursive: true, force: true });
  });

  const lineWith = (part: string) => lines.find((line) => line.includes(part)) ?? '';

  const run = async (...script: string[]) => {
    const text = script.join('\n').replaceAll(PRINTED_URL, url);
    const set = `export MILLRACE_URL=${url} XDG_CONFIG_HOME=${folder} MILLRACE_KEY=${key ?? ''}\n`;
    const { exitCode, stderr, stdout } = await runCommandLine(set + text, folder);
    expect(exitCode, `${text}\n${stderr}\n${stdout}`).toBe(0);
    return stdout;
  };

  const open = (path: string) => new OpenAI({ baseURL: url + path, apiKey: key, maxRetries: 0 });

  async function checkEndpoint(path: string): Promise<void> {
    const client = open(path);
    const messages = [{ role: 'user' as const, content: 'round and round' }];
    const whole = await client.chat.completions.create({ model: 'small', messages });
    expect(whole.choices[0]?.message.content).toBe('round and round');
    const { data } = await client.models.list();
    expect(data.map(({ id }) => id)).toEqual(['small']);
    const unknown = client.chat.completions.create({ model: 'other', messages, stream: true });
    await expect(unknown).rejects.toThrow(NotFoundError);
    await expect(unknown).rejects.toThrow(/unknown model/);
  }

  it('serves it behind a load-balancing endpoint', async () => {
    await run(lineWith('templates create'), lineWith('endpoints create'));
    expect(await run(lineWith('/lb/llm/v1'))).toBe('the mill turns ');
    await checkEndpoint('/lb/llm/v1');
  });

  it('serves it behind a queue endpoint', async () => {
    await run(lineWith('millrace deploy'));
    expect(await run(lineWith('/v2/chat/openai/v1'))).toBe('the mill turns ');
    await checkEndpoint('/v2/chat/openai/v1');
  });

  it('starts a server again that died', async () => {
    const before = listServers();
    expect(before.length).toBeGreaterThan(0);
    for (const pid of before) process.kill(pid, 'SIGKILL');
    await expect
      .poll(() => checkEndpoint('/v2/chat/openai/v1').then(() => 'served'), {
        timeout: 60_000,
        interval: 500,
      })
      .toBe('served');
  });

  /** Process IDs of the servers that this platform's workers have started. */
  function listServers(): number[] {
    return readProcesses()
      .map(({ pid }) => pid)
      .filter((pid) => /\0[^\0]*server\.py\0\d+\0$/.test(readCommandLine(pid)))
      .filter((pid) => readCommandLine(pid).includes(folder));
  }
});
