// The example onnx with ONNX Runtime itself, installed in a copy outside of the checkout. npm takes what it can
// from its cache, the rest from the registry.
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { npm } from '../support/npm.ts';
import { sayingOf, standInFolder } from '../support/nvidia-smi/stand-in.ts';
import { readCodeBlocks, runCommandLine } from '../support/printed-commands.ts';

const ROOT = resolve(import.meta.dirname, '../..');
const README = 'examples/onnx/README.md';
const NODE = `'${process.execPath}'`;
const installLimitMs = 300_000;

/** Stands for the clone. */
let folder: string;
let example: string;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'millrace-onnx-'));
  example = join(folder, 'examples/onnx');
  const made = /\/(node_modules|model\.onnx|package-lock\.json)$/;
  cpSync(join(ROOT, 'examples/onnx'), example, {
    recursive: true,
    filter: (path) => !made.test(path),
  });
  // npm links the package of the clone and installs nothing for it; here a link stands in for that.
  const manifest = JSON.parse(readFileSync(join(example, 'package.json'), 'utf8'));
  expect(manifest.dependencies.millrace).toBe('file:../..');
  delete manifest.dependencies.millrace;
  writeFileSync(join(example, 'package.json'), JSON.stringify(manifest));
  const [setup] = await readCodeBlocks(README);
  expect(setup?.text).toBe(
    'npm --prefix examples/onnx install --ignore-scripts\nnpx node examples/onnx/make-model.ts\n',
  );
  await npm(['install', '--ignore-scripts'], example);
  symlinkSync(ROOT, join(example, 'node_modules/millrace'));
  mkdirSync(join(example, 'node_modules/@types'));
  symlinkSync(join(ROOT, 'node_modules/@types/node'), join(example, 'node_modules/@types/node'));
  writeFileSync(join(folder, 'tsconfig.json'), `{ "extends": "${ROOT}/tsconfig.json" }`);
  const { exitCode, stderr } = await runCommandLine(`${NODE} make-model.ts`, example);
  expect(exitCode, stderr).toBe(0);
}, installLimitMs);

afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Runs the command of the README, with these variables. */
async function runPrinted(
  variables: Readonly<Record<string, string>>,
  change: (line: string) => string = (line) => line,
) {
  const [, command] = await readCodeBlocks(README);
  expect(command?.text).toMatch(/^ORT_DISABLE_TELEMETRY=1 npx millrace run \S+ --input .*\n$/);
  const assignments = Object.entries(variables).map(([name, value]) => `export ${name}="${value}"`);
  return runCommandLine([...assignments, change(command?.text ?? 'false')].join('\n'), folder);
}

describe('the example onnx', () => {
  it('prints the output of its README', async () => {
    const [, , printed] = await readCodeBlocks(README);
    // On the processors, also of a machine with a GPU.
    const { exitCode, stderr, stdout } = await runPrinted({ CUDA_VISIBLE_DEVICES: '-1' });
    expect(stdout, stderr).toBe(printed?.text);
    expect(exitCode).toBe(0);
  });

  it('computes the same as plain code, and refuses invalid pictures', async () => {
    const { exitCode, stderr, stdout } = await runCommandLine(
      `ORT_DISABLE_TELEMETRY=1 ${NODE} --test handler.node-test.ts`,
      example,
    );
    expect(exitCode, stdout + stderr).toBe(0);
  });

  it('asks for CUDA on a machine with a GPU, and does not fall back to the processors', async () => {
    const { exitCode, stderr, stdout } = await runPrinted({
      ...sayingOf('one-h200'),
      PATH: `${standInFolder}:$PATH`,
    });
    expect(stderr).toContain('OrtSessionOptionsAppendExecutionProvider_Cuda');
    expect(stderr).not.toContain('teardown');
    expect(stdout).toBe('');
    expect(exitCode).toBe(1);
  });

  it('does not run if ONNX Runtime would send usage data', async () => {
    const variables = { CUDA_VISIBLE_DEVICES: '-1', ORT_DISABLE_TELEMETRY: '' };
    const { exitCode, stderr, stdout } = await runPrinted(variables, (line) =>
      line.replace('ORT_DISABLE_TELEMETRY=1 ', ''),
    );
    expect(stderr).toContain('start the worker with ORT_DISABLE_TELEMETRY=1');
    expect(stdout).toBe('');
    expect(exitCode).toBe(1);
  });

  it('has correct types', async () => {
    const { exitCode, stdout } = await runCommandLine(
      `${NODE} '${ROOT}/node_modules/typescript/bin/tsc' -p .`,
      example,
    );
    expect(stdout).toBe('');
    expect(exitCode).toBe(0);
  });
});
