// `millrace diff`: compares a handler's project with the version that runs.
import { type Command, CommandError, EXIT } from '../command.ts';
import { parseOptions } from '../option-parser.ts';
import { flag, integer, text } from '../options.ts';
import { print } from '../output.ts';
import { callPlatform, clientOptions, connectPlatform } from '../resources/client-options.ts';
import { formatSize } from './byte-size.ts';
import { type FileChange, findChanges, formatTextChange, MAX_TEXT_BYTES } from './file-changes.ts';
import { explainArchive, type PackedProject, packProject } from './package-files.ts';
import { chooseName, findProject } from './project.ts';
import { nameOption } from './rollout-options.ts';
import { needEndpoint } from './target.ts';

const MAX_VERSION = 999_999_999;

const options = {
  name: nameOption,
  version: integer({
    ...{ min: 1, max: MAX_VERSION },
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

export const diffCommand: Command = {
  name: 'millrace diff',
  description: [
    'Compares the files that `millrace deploy` would send with those of the running version. Prints one line ' +
      'for each file that differs (A added, M changed, D removed, X executable bit), and the changed lines of ' +
      'text files of at most 64 KB.',
  ],
  positionals: [{ name: '<handler>', help: 'handler module, .ts or .js' }],
  options,
  examples: ['millrace diff handler.ts', 'millrace diff handler.ts --version 3 --stat'],
  exitCodes: [
    { code: EXIT.ok, meaning: 'compared, with or without differences' },
    { code: EXIT.failed, meaning: 'the files break a limit, or the platform refused a request' },
    { code: EXIT.usage, meaning: 'wrong usage' },
  ],
  run,
};

async function run(args: readonly string[]): Promise<number> {
  const { positionals, values } = parseOptions(options, args);
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
