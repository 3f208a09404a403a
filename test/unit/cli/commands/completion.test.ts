// The completion scripts, run by the shells themselves where they are installed.
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import {
  type CompletionTable,
  composeTable,
  renderBash,
  renderFish,
  renderZsh,
} from '../../../../src/cli/commands/completion.ts';
import { commands, groups } from '../../../support/all-commands.ts';

const wordOf = (name: string) => name.replace('millrace ', '');

const table = composeTable([
  ...groups.map((command) => ({ word: wordOf(command.name), summary: 'a group', command })),
  ...commands
    .filter(({ name }) => !wordOf(name).includes(' '))
    .map((command) => ({ word: wordOf(command.name), summary: "it's a $command", command })),
]);

type Shell = (script: string, line: readonly string[]) => string[];

const lines = (text: string) => text.split('\n').filter((line) => line !== '');

const runBash: Shell = (script, line) => {
  const words = `COMP_WORDS=("$@"); COMP_CWORD=${line.length - 1}`;
  const print = `printf "%s\\n" "\${COMPREPLY[@]}"`;
  const source = `source ${script}; ${words}; _millrace; ${print}`;
  return lines(execFileSync('bash', ['-c', source, 'bash', ...line], { encoding: 'utf8' }));
};

/** The functions of zsh that show matches print them instead, filtered as zsh would. */
const runZsh: Shell = (script, line) => {
  const source = `
    compdef() { : }
    show() { local each; for each; do [[ $each == "$words[CURRENT]"* ]] && print -r -- $each; done; true }
    _describe() { show \${\${(P)2}%%:*} }
    compadd() { shift; show "$@" }
    _files() { print -r -- FILES }
    source ${script}
    words=("$@"); CURRENT=${line.length}
    _millrace`;
  return lines(execFileSync('zsh', ['-f', '-c', source, 'zsh', ...line], { encoding: 'utf8' }));
};

const runFish: Shell = (script, line) => {
  const source = `source ${script}; complete -C ${JSON.stringify(line.join(' '))}`;
  const found = lines(execFileSync('fish', ['--no-config', '-c', source], { encoding: 'utf8' }));
  return found.map((each) => each.split('\t')[0] ?? '');
};

const SHELLS: [name: string, render: (table: CompletionTable) => string, run: Shell][] = [
  ['bash', renderBash, runBash],
  ['zsh', renderZsh, runZsh],
  ['fish', renderFish, runFish],
];

const isInstalled = (shell: string) => spawnSync(shell, ['-c', 'true']).status === 0;

function write(shell: string, script: string): string {
  const folder = mkdtempSync(join(tmpdir(), `millrace-${shell}-`));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const path = join(folder, 'millrace');
  writeFileSync(path, script);
  return path;
}

describe.each(SHELLS)('%s', (shell, render, run) => {
  it.skipIf(!isInstalled(shell))('completes commands, options and values', () => {
    const script = write(shell, render(table));
    const complete = (...line: string[]) => run(script, ['millrace', ...line]).sort();
    expect(complete('doc')).toEqual(['doctor']);
    expect(complete('')).toEqual(expect.arrayContaining(['dev', 'jobs', 'pods', 'login']));
    expect(complete('pods', 'st')).toEqual(['start', 'stop']);
    expect(complete('pods', 'create', '--te')).toEqual(['--template']);
    expect(complete('jobs', 'list', '--endpoint', 'pods', '--cu')).toEqual(['--cursor']);
    expect(complete('endpoints', 'create', '--type', '')).toEqual(['LOAD_BALANCER', 'QUEUE']);
    expect(complete('endpoints', 'create', '--type', 'L')).toEqual(['LOAD_BALANCER']);
    expect(complete('pods', 'show', '--unknown')).toEqual([]);
  });
});

it('lists every command and no internal option', () => {
  const paths = table.map(({ path }) => `millrace ${path}`.trim());
  const names = [...commands, ...groups].map(({ name }) => name);
  expect(paths.sort()).toEqual([...names, 'millrace'].sort());
});

it.skipIf(!isInstalled('bash'))('completes a value behind an equals sign in bash', () => {
  const script = write('bash', renderBash(table));
  const line = ['millrace', 'endpoints', 'create', '--type', '=', 'Q'];
  expect(runBash(script, line)).toEqual(['QUEUE']);
  expect(runBash(script, line.slice(0, -1))).toEqual(['QUEUE', 'LOAD_BALANCER']);
});
