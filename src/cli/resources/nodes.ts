// `millrace nodes`: lists the nodes of a platform with what their machines have and hold.
import { connectNodes } from '../../client/nodes.ts';
import type { NodeRecord } from '../../wire/resources/nodes.ts';
import type { Command } from '../command.ts';
import { defineApiVerb } from './api-verb.ts';
import { formatItems, type ListKind, showRecord } from './resource-command.ts';

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

const verb = defineApiVerb({
  summary: 'list the nodes of the platform',
  options: {},
  examples: ['millrace nodes', 'millrace nodes --json | jq .nodes[].url'],
  act: async ({ caller, json, width }) => {
    const list = await connectNodes(caller).list();
    return json ? showRecord(list, true) : formatItems(list.nodes, kind, width);
  },
});

const { examples, exitCodes, options, positionals, run } = verb;

export const nodesCommand: Command = {
  name: 'millrace nodes',
  description: [
    'Lists the nodes of the platform with their shards and what pods hold of their machines. It needs a key of the ' +
      'operator (user `owner`) with `pods:read`.',
  ],
  ...{ positionals, options, examples, exitCodes, run },
};

function say(share: Share | undefined): string {
  if (!share) return '';
  return share.limit === null ? String(share.used) : `${share.used} of ${share.limit}`;
}

function sayGpus(gpus: readonly { podId: string | null }[]): string {
  if (gpus.length === 0) return '';
  return `${gpus.filter(({ podId }) => podId === null).length} of ${gpus.length}`;
}
