// `millrace diff`: compares a handler's project with the version that runs.

import { diff } from 'node:util';
import { CommandError, defineCommand, EXIT } from '../command.ts';
import type { ParsedArguments } from '../option-parser.ts';
import { flag, integer, text } from '../options.ts';
import { formatSize, print } from '../output.ts';
import { callPlatform, clientOptions, connectPlatform } from '../resources/client-options.ts';
import { explainArchive, type PackedProject, packProject } from './package-files.ts';
import { chooseName, findProject } from './project.ts';
import { nameOption } from './rollout.ts';
import { needEndpoint } from './target.ts';

const MAX_VERSION = 999_999_999;

const options = {
  name: nameOption,
  version: integer({
    min: 1,
    max: MAX_VERSION,
    help: 'version to compare with; default: the running one',
  }),
  root: text({
    placeholder: 'DIR',
    help: 'folder of the project; default: that of the nearest package.json above the handler',
  }),
  stat: flag({ help: 'print only which files differ' }),
  json: flag({ help: 'print the changes as one line of JSON' }),
  ...clientOptions,
};

const SIGNS: Readonly<Record<FileChange['kind'], string>> = {
  added: 'A',
  removed: 'D',
  changed: 'M',
  mode: 'X',
};

export const diffCommand = defineCommand({
  name: 'millrace diff',
  description: [
    'Compares the files that `millrace deploy` would send with those of the running version. Prints one line ' +
      'for each file that differs (A added, M changed, D removed, X executable bit), and the changed lines of ' +
      'text files of at most 64 KB.',
  ],
  positionals: [{ name: '<handler>', help: 'handler module, .ts or .js' }],
  options,
  examples: ['millrace diff handler.ts', 'millrace diff handler.ts --version 3 --stat'],
  exitCodes: {
    ok: 'compared, with or without differences',
    failed: 'the files break a limit, or the platform refused a request',
  },
  run,
});

async function run({ positionals, values }: ParsedArguments<typeof options>): Promise<number> {
  const project = findProject(positionals, values.root);
  const name = chooseName(values.name, project);
  const packed = await packProject(project);
  const { platform } = connectPlatform(values);
  const { archive, version } = await callPlatform(async () => {
    const endpoint = await needEndpoint(platform, name);
    const number = values.version ?? endpoint.version;
    if (number === null) throw new CommandError(`${name} runs no version; give --version N`);
    const downloaded = await platform.endpoints.versions(endpoint.id).archive(number);
    return { archive: downloaded, version: number };
  });
  const changes = await explainArchive(() => compare(archive, packed));
  if (values.json) void print(`${JSON.stringify({ version, changes })}\n`);
  else if (changes.length === 0) void print(`no difference from version ${version}\n`);
  else {
    const lines = changes.map(describe);
    if (!values.stat)
      lines.push(...(await explainArchive(() => showTexts(archive, packed, changes))));
    void print(`${lines.join('\n')}\n`);
  }
  return EXIT.ok;
}

async function compare(archive: Uint8Array, packed: PackedProject): Promise<FileChange[]> {
  const { inspectArchive } = await import('../../archive/unpack.ts');
  const { files } = await inspectArchive(archive);
  return findChanges(files, packed.files);
}

function describe({ bytesAfter, bytesBefore, kind, path }: FileChange): string {
  const sizes = {
    added: formatSize(bytesAfter),
    removed: formatSize(bytesBefore),
    changed: `${formatSize(bytesBefore)} → ${formatSize(bytesAfter)}`,
    mode: 'executable bit',
  };
  return `${SIGNS[kind]} ${path}  ${sizes[kind]}`;
}

async function showTexts(
  archive: Uint8Array,
  packed: PackedProject,
  changes: readonly FileChange[],
): Promise<string[]> {
  const { readArchivedFiles } = await import('../../archive/unpack.ts');
  const changed = new Set(changes.filter(({ kind }) => kind === 'changed').map(({ path }) => path));
  const wanted = { isWanted: (path: string) => changed.has(path), maxBytes: MAX_TEXT_BYTES };
  const [before, after] = [
    await readArchivedFiles(archive, wanted),
    await readArchivedFiles(packed.bytes, wanted),
  ];
  return [...changed].flatMap((path) => {
    const [old, now] = [before.get(path), after.get(path)];
    const shown = old && now ? formatTextChange(path, old, now) : undefined;
    return shown === undefined ? [] : ['', shown];
  });
}

/** Larger files are only named. */
const MAX_TEXT_BYTES = 64 * 1024;
/** Both files together; the comparison needs memory for the square of it. */
const MAX_LINES = 2_000;
/** Lines of context around a difference. */
const CONTEXT = 3;

interface ComparedFile {
  path: string;
  bytes: number;
  sha256: string;
  isExecutable: boolean;
}

interface FileChange {
  path: string;
  /** `mode`: only the executable bit differs. */
  kind: 'added' | 'removed' | 'changed' | 'mode';
  bytesBefore: number;
  bytesAfter: number;
}

/** Sorted by path. */
export function findChanges(
  before: readonly ComparedFile[],
  after: readonly ComparedFile[],
): FileChange[] {
  const old = new Map(before.map((file) => [file.path, file]));
  const now = new Map(after.map((file) => [file.path, file]));
  const paths = [...new Set([...old.keys(), ...now.keys()])].toSorted();
  return paths.flatMap((path) => {
    const [was, is] = [old.get(path), now.get(path)];
    const kind = nameChange(was, is);
    return kind ? [{ path, kind, bytesBefore: was?.bytes ?? 0, bytesAfter: is?.bytes ?? 0 }] : [];
  });
}

function nameChange(
  was: ComparedFile | undefined,
  is: ComparedFile | undefined,
): FileChange['kind'] | undefined {
  if (!was) return 'added';
  if (!is) return 'removed';
  if (was.sha256 !== is.sha256) return 'changed';
  return was.isExecutable === is.isExecutable ? undefined : 'mode';
}

/** Undefined if one of the files is no text, or both are too long. */
export function formatTextChange(
  path: string,
  before: Uint8Array,
  after: Uint8Array,
): string | undefined {
  const [old, now] = [readText(before), readText(after)];
  if (old === undefined || now === undefined) return undefined;
  const [oldLines, newLines] = [splitLines(old), splitLines(now)];
  if (oldLines.length + newLines.length > MAX_LINES) return undefined;
  const lines = diff(oldLines, newLines);
  const shown = lines.map(([operation], at) => {
    const near = lines.slice(Math.max(0, at - CONTEXT), at + CONTEXT + 1);
    return operation !== 0 || near.some(([other]) => other !== 0);
  });
  const body: string[] = [];
  for (const [at, [operation, line]] of lines.entries()) {
    if (!shown[at]) continue;
    if (at > 0 && !shown[at - 1]) body.push('@@');
    // util.diff marks what only the first argument has with -1 or 1, see LINE_SIGNS.
    body.push(`${LINE_SIGNS[operation + 1]}${line}`);
  }
  return [`--- ${path}`, `+++ ${path}`, ...body].join('\n');
}

/** The line break at the end of a file begins no line. */
function splitLines(text: string): string[] {
  return text.replace(/\n$/, '').split('\n');
}

/** Of -1, 0 and 1. */
const LINE_SIGNS = ['+', ' ', '-'] as const;

function readText(bytes: Uint8Array): string | undefined {
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    return text.includes('\0') ? undefined : text;
  } catch {
    return undefined;
  }
}
