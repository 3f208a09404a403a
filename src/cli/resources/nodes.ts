// `millrace nodes`: lists the nodes of a platform with what their machines have and hold, and writes the secrets that
// nodes share.
import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { connectNodes } from '../../client/platform-client.ts';
import {
  makeKeyFile,
  makeSecretsKey,
  makeWebhookSecrets,
} from '../../platform/files/secret-files.ts';
import { createOptionFile, PlatformOptionError } from '../../platform/option-error.ts';
import type { NodeRecord } from '../../wire/resources/nodes.ts';
import { CommandError, type CommandGroup, defineVerb, EXIT } from '../command.ts';
import { print } from '../output.ts';
import { defineApiVerb, formatItems, type ListKind, showRecord } from './resource-command.ts';

type Share = { limit: number | null; used: number };

const kind: ListKind<NodeRecord> = {
  plural: 'nodes',
  columns: {
    NODE: ({ id, name }) => name ?? id,
    STATE: ({ isLeader, state }) => (isLeader ? `${state}, leads` : state),
    VERSION: ({ self }) => self?.version ?? 'no answer',
    SHARDS: ({ shards }) => shards.join(','),
    ENDPOINTS: ({ endpoints }) => String(endpoints),
    PODS: ({ machine }) => String(machine?.pods ?? ''),
    'MEMORY GB': ({ machine }) => say(machine?.memoryGb),
    VCPUS: ({ machine }) => say(machine?.vcpus),
    'DISK GB': ({ machine }) => say(machine?.diskGb),
    'GPUS FREE': ({ machine }) => sayGpus(machine?.gpus ?? []),
    ATTENTION: ({ self }) => self?.store.warnings.join('; ') ?? '',
  },
};

const NODE_SECRET_BYTES = 32;

/** The files of `nodes init`: the option of `serve` that names each, and what writes it. */
const SECRET_FILES: readonly { name: string; flag: string; make: (path: string) => unknown }[] = [
  {
    name: 'node-secret',
    flag: '--node-secret-file',
    make: (path) => {
      const secret = randomBytes(NODE_SECRET_BYTES).toString('base64url');
      createOptionFile('nodes.secretFile', path, `${secret}\n`);
    },
  },
  { name: 'webhook-secrets', flag: '--webhook-secret-file', make: makeWebhookSecrets },
  { name: 'keys', flag: '--key-file', make: makeKeyFile },
  { name: 'secrets-key', flag: '--secrets-key-file', make: makeSecretsKey },
];

const positionals = [{ name: '[folder]', help: 'folder of the files; default: millrace-secrets' }];

const initVerb = defineVerb({
  summary: 'writes the secrets that all nodes of a platform share',
  description: [
    'Writes the secret of the nodes, the secrets of webhooks, the keys and the key that encrypts the secrets of ' +
      'registries, each to a file that only you can read. Files that exist stay. Copy the folder to each node.',
  ],
  positionals,
  options: {},
  examples: ['millrace nodes init', 'millrace nodes init /etc/millrace'],
  exitCodes: {
    ok: 'the files exist',
    failed: 'a file cannot be written',
  },
  run({ positionals: words }) {
    const folder = resolve(words[0] ?? 'millrace-secrets');
    const flags = writeSecrets(folder).map(([flag, path]) => `  ${flag} ${path}`);
    void print(
      `Give these options to \`millrace serve --node-url URL --store URL\` on each node:\n\n${flags.join(' \\\n')}\n`,
    );
    return Promise.resolve(EXIT.ok);
  },
});

/** Returns the flag and the path of each file. @throws CommandError */
function writeSecrets(folder: string): [string, string][] {
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    return SECRET_FILES.map(({ flag, make, name }) => {
      const path = join(folder, name);
      if (!existsSync(path)) make(path);
      return [flag, path];
    });
  } catch (error) {
    const known = error instanceof PlatformOptionError ? error.problem : undefined;
    const reason = known ?? (error instanceof Error ? error.message : String(error));
    throw new CommandError(`${folder}: ${reason}`);
  }
}

export const nodesCommands: CommandGroup = {
  name: 'millrace nodes',
  description: ['Nodes share one Postgres database and the endpoints: see docs/scaling-out.md.'],
  verbs: {
    list: defineApiVerb({
      summary: 'lists the nodes of the platform',
      description: [
        'Lists the nodes with their shards and what pods hold of their machines. It needs a key of the operator (user ' +
          '`owner`) with `pods:read`.',
      ],
      options: {},
      examples: ['millrace nodes list', 'millrace nodes list --json | jq .nodes[].url'],
      act: async ({ caller, json, width }) => {
        const list = await connectNodes(caller).list();
        return json ? showRecord(list, true) : formatItems(list.nodes, kind, width);
      },
    }),
    init: initVerb,
  },
  examples: ['millrace nodes list', 'millrace nodes init /etc/millrace'],
};

function say(share: Share | undefined): string {
  if (!share) return '';
  return share.limit === null ? String(share.used) : `${share.used} of ${share.limit}`;
}

function sayGpus(gpus: readonly { podId: string | null }[]): string {
  if (gpus.length === 0) return '';
  return `${gpus.filter(({ podId }) => podId === null).length} of ${gpus.length}`;
}
