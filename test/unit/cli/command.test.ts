// Every command's help is complete, because it is made of the tables that arguments are parsed by.
import { describe, expect, it } from 'vitest';
import { EXIT, listCommands, renderGroupHelp, renderHelp } from '../../../src/cli/command.ts';
import { flagName } from '../../../src/cli/options.ts';
import { commands, groups } from '../../support/all-commands.ts';

describe.each(groups)('$name', (group) => {
  it('lists its commands with their arguments and an example', () => {
    const help = renderGroupHelp(group);
    for (const [word, { positionals, summary }] of Object.entries(group.verbs)) {
      expect(help).toContain([`  ${word}`, ...positionals.map(({ name }) => name)].join(' '));
      expect(help.replaceAll(/\s+/g, ' ')).toContain(summary);
    }
    expect(help).toContain(`Examples:\n  `);
  });

  it('has no option that takes a value in one command and none in another', () => {
    const kinds = new Map<string, boolean>();
    for (const { options } of Object.values(group.verbs)) {
      for (const [name, { kind }] of Object.entries(options)) {
        expect(kinds.get(name) ?? kind === 'flag', name).toBe(kind === 'flag');
        kinds.set(name, kind === 'flag');
      }
    }
  });

  it('has an example of each command that names the command', () => {
    for (const { examples, name } of listCommands(group)) {
      for (const example of examples) expect(example).toContain(name);
      expect(examples.length).toBeGreaterThan(0);
    }
  });
});

describe.each(commands)('$name', (command) => {
  const help = renderHelp(command);
  const unwrapped = help.replaceAll(/\s+/g, ' ');

  it('names every option with its default, its range and its variable, except internal ones', () => {
    for (const [name, option] of Object.entries(command.options)) {
      const { defaultText, env, rangeText, section } = option;
      const isShown = unwrapped.includes(` ${flagName(name)} `);
      expect(isShown, name).toBe(section !== 'internal');
      if (!isShown) continue;
      if (rangeText !== undefined) expect(unwrapped).toContain(rangeText);
      expect(unwrapped).not.toContain(`${Number.MAX_SAFE_INTEGER}`);
      if (defaultText !== undefined) expect(unwrapped).toContain(`default ${defaultText}`);
      if (env !== undefined) expect(unwrapped).toContain(env);
    }
  });

  it('names every argument and every exit code, and has an example', () => {
    for (const { name } of command.positionals) expect(help).toContain(name);
    for (const [name, code] of Object.entries(EXIT)) {
      const meaning = Object.entries(command.exitCodes).find(([each]) => each === name)?.[1];
      if (meaning !== undefined) expect(unwrapped).toContain(`${code} ${meaning}`);
    }
    expect(help).toContain('Examples:');
  });

  it('names the unit of every option in ms', () => {
    for (const [name, { help: line, rangeText }] of Object.entries(command.options)) {
      if (/Ms$/.test(name)) expect(`${line} ${rangeText}`).toMatch(/\bms\b/);
    }
  });

  it('names --file only if the command takes it', () => {
    expect(/ --file\b(?!-)/.test(help)).toBe('file' in command.options);
  });

  it('begins no help of an option with a proper name in lower case', () => {
    for (const { help: line } of Object.values(command.options))
      expect(line).not.toMatch(/^(docker|kubernetes|millrace|python|runpod)\b/);
  });

  it('is no wider than 100 columns', () => {
    for (const line of help.split('\n')) expect(line.length).toBeLessThanOrEqual(100);
  });
});

it.each([
  ['millrace serve', ['Options', 'Address and TLS', 'Data folder and database']],
  ['millrace worker', ['Options', 'Platform', 'Processes, threads and devices']],
  ['millrace dev', ['Options', 'Examples', 'Exit codes']],
  ['millrace down', ['Options', 'Examples', 'Exit codes']],
])('gives %s the headings %j', (name, headings) => {
  const command = commands.find((each) => each.name === name);
  const found = command ? renderHelp(command).matchAll(/^([A-Z][\w ,]+):$/gm) : [];
  const titles = [...found].map(([, title]) => title).filter((title) => title !== 'Arguments');
  expect(titles.slice(0, 3)).toEqual(headings);
});

/** Third person: "lists jobs". */
const VERB = /^[a-z]+s\b/i;

it('begins every summary and every description with a verb', () => {
  const summaries = groups.flatMap(({ verbs }) => Object.values(verbs).map((each) => each.summary));
  const first = commands.map(({ description }) => description[0] ?? '');
  expect([...summaries, ...first].filter((text) => !VERB.test(text))).toEqual([]);
});
