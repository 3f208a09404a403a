// The command lines that the docs print: each command and each of its options exists.
import { globSync, readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { expect, it } from 'vitest';
import { flagName } from '../../../src/cli/options.ts';
import { commands } from '../../support/all-commands.ts';

const ROOT = resolve(import.meta.dirname, '../../..');
const PAGES = globSync(['README.md', 'CONTRIBUTING.md', 'docs/**/*.md', 'examples/*/*.md'], {
  cwd: ROOT,
});
const MANIFESTS = [
  'deploy/compose.yaml',
  'deploy/compose-one-node.yaml',
  'deploy/kubernetes/base/nodes.yaml',
];
const OPTIONS_OF_ALL = ['--help', '--version'];

/** What stands behind `millrace ` in code, with continued lines joined. */
function listPrinted(markdown: string): string[] {
  const code = [...markdown.matchAll(/^```.*?\n(.*?)^```$|`([^`\n]+)`/gms)];
  return code.flatMap(([, block, inline]) => {
    const text = (block ?? inline ?? '').replaceAll(/\\\n\s*/g, ' ');
    const calls = [...text.matchAll(/(?:^|[\s/])millrace ([a-z][^\n|;&#)]*)/gm)];
    return calls.map(([, call = '']) => `millrace ${call.trim()}`);
  });
}

function findTrouble(printed: string): string | undefined {
  // What stands behind `--` belongs to another program.
  const [own = ''] = printed.split(/\s--\s/);
  const words = own.split(/\s+/);
  const group = `${words.slice(0, 2).join(' ')} `;
  const isGroup = /^(--help|<.*)?$/.test(words[2] ?? '');
  const named = commands.filter(({ name }) =>
    isGroup && name.startsWith(group) ? true : `${own} `.startsWith(`${name} `),
  );
  if (named.length === 0) return 'no such command';
  const known = named.flatMap(({ options }) => Object.keys(options).map(flagName));
  const flags = words
    .filter((word) => /^--[a-z]/.test(word))
    .map((word) => word.replace(/=.*/, ''));
  return flags.find((flag) => ![...OPTIONS_OF_ALL, ...known].includes(flag));
}

it.each(PAGES)('finds in %s only commands and options that exist', (page) => {
  const printed = listPrinted(readFileSync(resolve(ROOT, page), 'utf8'));
  const troubles = printed.flatMap((call) => {
    const trouble = findTrouble(call);
    return trouble === undefined ? [] : [`${call}: ${trouble}`];
  });
  expect(troubles).toEqual([]);
});

it.each(MANIFESTS)('finds in %s only options, variables and secrets that exist', (file) => {
  const compose = readFileSync(resolve(ROOT, file), 'utf8');
  const script = readFileSync(resolve(ROOT, 'deploy/make-secrets.sh'), 'utf8');
  const secrets = [...compose.matchAll(/secrets\/([a-z.-]+)/g)].map(([, name = '']) => name);
  expect(secrets.filter((name) => !script.includes(` > ${name}\n`))).toEqual([]);
  const flags = [...compose.matchAll(/^ +- (--[a-z-]+)/gm)].map(([, name = '']) => name);
  expect(flags.length).toBeGreaterThan(0);
  expect(findTrouble(`millrace serve ${flags.join(' ')}`)).toBeUndefined();
  const names = [...compose.matchAll(/^ +(?:- name: )?(MILLRACE_\w+)(?::|$)/gm)].map(
    ([, name = '']) => name,
  );
  const known = new Set(
    commands.flatMap(({ options }) => Object.values(options).map(({ env }) => env)),
  );
  expect(names.length).toBeGreaterThan(0);
  expect(names.filter((name) => !known.has(name))).toEqual([]);
});

it('finds an unknown command and an unknown option', () => {
  expect(findTrouble('millrace serve --host 0.0.0.0 --no-such=1')).toBe('--no-such');
  expect(findTrouble('millrace store mend --data x')).toBe('no such command');
});
