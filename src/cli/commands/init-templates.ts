// The templates of `millrace init`: their files, packages and texts.
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { UnknownWordError } from '../options.ts';

const COMMON = fileURLToPath(new URL('./init-template/', import.meta.url));
const PYTHON_LIBRARY = fileURLToPath(
  new URL('../../process/python/millrace_model.py', import.meta.url),
);
/** The ready-made handlers, beside `src` and `dist`. */
const HANDLERS = fileURLToPath(new URL('../../../handlers/', import.meta.url));

export interface Template {
  name: string;
  /** For --help. */
  help: string;
  /** For the project's README, after the project's name. */
  about: string;
  /** Input of a job as JSON, for the README. */
  example: string;
  /** Packages besides those of every project; this package tests its own versions of them. */
  dependencies: readonly string[];
  /** Files from elsewhere, by their path in the project. */
  sources: Readonly<Record<string, string>>;
}

const TEMPLATES: readonly Template[] = [
  {
    name: 'typescript',
    help: 'the handler does the work',
    about: 'A Millrace handler: `handler.ts`.',
    example: '{"text":"one two\\nthree"}',
    dependencies: [],
    sources: {},
  },
  {
    name: 'python',
    help: 'it calls a model in Python',
    about:
      'A Millrace handler with a model in Python: `handler.ts` starts `model.py` once and calls its functions for every ' +
      'job.\n`millrace_model.py` is the library between them. It needs Python 3.9 or newer.',
    example: '{"text":"one two\\nthree"}',
    dependencies: [],
    sources: { 'millrace_model.py': PYTHON_LIBRARY },
  },
  {
    name: 'openai-proxy',
    help: 'it streams the answers of an OpenAI-compatible server',
    about:
      'A Millrace handler that sends jobs to an OpenAI-compatible server and streams its answers. Set two variables in the ' +
      'environment of\nthe worker: `OPENAI_BASE_URL` with the version, such as `http://127.0.0.1:8080/v1`, and `OPENAI_API_KEY`. ' +
      'For a server that wants no\nkey, any text will do. For an endpoint, add `--env OPENAI_BASE_URL=… --env OPENAI_API_KEY=…` to `deploy`.',
    example: '{"model":"llama-3.1-8b","messages":[{"role":"user","content":"Say hi"}]}',
    dependencies: ['eventsource-parser', 'undici'],
    sources: takeHandlers(
      'openai-proxy.ts',
      ...[
        'collect-bytes.ts',
        'completion-stream.ts',
        'openai-upstream.ts',
        'retry-after.ts',
        'sse.ts',
      ],
    ),
  },
  {
    name: 'image',
    help: 'it resizes and converts images with sharp',
    about: 'A Millrace handler that turns, resizes and converts images with sharp.',
    example: '{"image":"R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7","format":"png"}',
    dependencies: ['sharp'],
    sources: takeHandlers('image.ts'),
  },
];

function takeHandlers(handler: string, ...library: string[]): Record<string, string> {
  const files = library.map((name) => [`lib/${name}`, join(HANDLERS, 'lib', name)]);
  return { 'handler.ts': join(HANDLERS, handler), ...Object.fromEntries(files) };
}

/** One phrase for each template. */
export function describeTemplates(): string {
  return TEMPLATES.map(({ help, name }) => `${name}: ${help}`).join('; ');
}

/** @throws UnknownWordError */
export function findTemplate(name = 'typescript'): Template {
  const found = TEMPLATES.find((template) => template.name === name);
  if (found) return found;
  const names = TEMPLATES.map((template) => template.name);
  throw new UnknownWordError('template', name, names);
}

/** Path of each file of the template, by its path in the project. */
export function listFiles({ name, sources }: Template): Map<string, string> {
  const files = new Map<string, string>();
  for (const folder of [COMMON, join(COMMON, name)]) {
    if (folder !== COMMON && name === 'typescript') continue;
    for (const entry of readdirSync(folder, { withFileTypes: true })) {
      if (entry.isDirectory()) continue;
      // npm omits dot files and nested package.json files from packages, or treats them as its own.
      const target =
        entry.name === '_package.json' ? 'package.json' : entry.name.replace(/^_/, '.');
      files.set(target, join(folder, entry.name));
    }
  }
  for (const [target, source] of Object.entries(sources)) files.set(target, source);
  return files;
}
