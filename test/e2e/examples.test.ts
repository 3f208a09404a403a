// Every example's command, run as its README prints it, with the output that the README prints.
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { describe, expect, it } from 'vitest';
import { readCodeBlocks, runCommandLine } from '../support/printed-commands.ts';
import { leaveOutWithoutPython } from '../support/python.ts';

const EXAMPLES = [
  'hello',
  'stream',
  'schema',
  'batch',
  'external-process',
  'python-model',
  'openai-server',
];
const PYTHON_EXAMPLES = ['python-model', 'openai-server'];
const hasPython = !leaveOutWithoutPython('the example python-model', 'numpy');

describe.each(EXAMPLES.filter((name) => hasPython || !PYTHON_EXAMPLES.includes(name)))(
  'the example %s',
  (name) => {
    it('prints the output of its README', async () => {
      const [command, printed] = await readCodeBlocks(`examples/${name}/README.md`);
      expect(command?.text).toMatch(/^npx millrace run \S+ --input .*\n$/);
      // One of them by npm's own npx.
      const line = command?.text.replace(/^npx/, name === 'hello' ? 'command npx' : 'npx') ?? '';
      const { exitCode, stderr, stdout } = await runCommandLine(line);
      expect(stdout, stderr).toBe(printed?.text);
      expect(exitCode).toBe(0);
    });
  },
);

/** The example's command with another input. */
async function runWith(name: string, input: string) {
  const [command] = await readCodeBlocks(`examples/${name}/README.md`);
  const line = command?.text.replace(/--input .*/, `--input '${input}'`) ?? '';
  return runCommandLine(line);
}

/** The input that the text of a README names beside its command. */
async function readOtherInput(name: string): Promise<string> {
  const readme = await readFile(`examples/${name}/README.md`, 'utf8');
  return /`--input '([^']*)'`/.exec(readme)?.[1] ?? '';
}

describe('the example schema', () => {
  it('refuses the invalid input of its README with the printed error', async () => {
    const [, , answer] = await readCodeBlocks('examples/schema/README.md');
    const { exitCode, stderr } = await runWith('schema', await readOtherInput('schema'));
    expect(exitCode).toBe(1);
    expect(stderr).toContain('input_invalid');
    expect(stderr).toContain(answer?.text.trim());
  });
});

describe('the example batch', () => {
  it('fails only the job with the empty text of its README', async () => {
    const [, , answer] = await readCodeBlocks('examples/batch/README.md');
    const { exitCode, stderr, stdout } = await runWith('batch', await readOtherInput('batch'));
    expect(exitCode).toBe(1);
    expect(stderr).toContain(answer?.text.trim());
    expect(stdout).toMatch(/^\{"index":0,"output":\{"vector":.*,"batchSize":2\}\}\n$/);
  });
});

describe('the example external-process', () => {
  it('fails with the error of the program for the invalid input of its README', async () => {
    const input = await readOtherInput('external-process');
    const { exitCode, stderr } = await runWith('external-process', input);
    expect(exitCode).toBe(1);
    expect(stderr).toMatch(/FAILED \(handler_error\).*gzip/);
  });
});

describe('the example stream', () => {
  it('prints the chunk with metrics of its README, with --json', async () => {
    const [command] = await readCodeBlocks('examples/stream/README.md');
    const { stdout } = await runCommandLine(`${command?.text.trim()} --json`);
    const events = stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    const chunks = events.filter(({ type }) => type === 'chunk');
    expect(chunks[2]).toEqual({ type: 'chunk', output: 5, metrics: { tested: 2, digits: 1 } });
    expect(events.at(-1)).toMatchObject({ type: 'result', status: 'COMPLETED' });
  });
});

describe.skipIf(!hasPython)('the example python-model', () => {
  it('prints the embedding of its README', async () => {
    const [, , command, printed] = await readCodeBlocks('examples/python-model/README.md');
    expect(command?.text).toMatch(/^npx millrace run .*embed\.ts /);
    const { exitCode, stderr, stdout } = await runCommandLine(command?.text ?? 'false');
    expect(stdout, stderr).toBe(printed?.text);
    expect(exitCode).toBe(0);
  });
});

describe('the example testing', () => {
  it('lists the tests that the unit project runs with Vitest', async () => {
    const [command] = await readCodeBlocks('examples/testing/README.md');
    expect(command?.text).toBe('npx vitest run examples/testing\n');
    expect(existsSync('examples/testing/handler.test.ts')).toBe(true);
  });

  it("passes its tests with Node's test runner", async () => {
    const [, command] = await readCodeBlocks('examples/testing/README.md');
    expect(command?.text).toMatch(/^npx node --test /);
    const line = command?.text.replace('npx node', process.execPath) ?? 'false';
    const { exitCode, stderr, stdout } = await runCommandLine(line);
    expect(exitCode, stdout + stderr).toBe(0);
  });
});
