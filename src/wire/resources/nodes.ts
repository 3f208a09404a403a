// Schemas of the nodes that serve a platform: what each owns, and what its machine has and holds.
import { z } from 'zod';
import { answerJson, describeOperations } from '../operations/operation.ts';
import { NODE_ROUTES } from '../routes/routes.ts';

const count = z.int().min(0);
const bytes = z.number().min(0).nullable();

const share = z.object({
  limit: z.number().min(0).nullable().describe('For all pods together; null: no limit is known'),
  used: z.number().min(0).describe('Held by pods'),
});

const nodeMachine = z.object({
  engine: z.string(),
  pods: count.describe('Containers that run or are to run'),
  memoryGb: share,
  vcpus: share,
  diskGb: share,
  gpus: z.array(
    z.object({
      uuid: z.string(),
      name: z.string(),
      memoryGb: z.number().min(0),
      podId: z.string().nullable().describe('The pod that holds it; null: it is free'),
    }),
  ),
});
export type NodeMachine = z.infer<typeof nodeMachine>;

/** What a node says of itself. */
export const nodeSelf = z.object({
  version: z.string(),
  startedAt: z.int().describe('Unix ms'),
  store: z.object({
    databaseBytes: bytes.describe('Of the shards that the node serves'),
    freeBytes: bytes.describe('Of the disk with the database; null for a database server'),
    warnings: z.array(z.string()).describe('What needs attention, as in `/readyz`'),
  }),
});
export type NodeSelf = z.infer<typeof nodeSelf>;

export const NODE_STATES = ['serving', 'leaving', 'gone'] as const;

const nodeRecord = z.object({
  id: z.string().describe('`local` if the platform has one node'),
  name: z.string().nullable().describe('As in records of pods; null if no machine is known'),
  url: z.string().nullable().describe('Where other nodes reach it; null if there are none'),
  state: z
    .enum(NODE_STATES)
    .describe(
      '`leaving`: it hands its shards over. `gone`: its lease has ended; it is shown for 10 minutes',
    ),
  isLeader: z.boolean().describe('It owns shard 0, and manages endpoints, keys and pods'),
  shards: z.array(count).describe('Shards that it owns; empty if the platform has one node'),
  endpoints: count.describe('Endpoints whose jobs it has'),
  self: nodeSelf.nullable().describe('What the node says of itself; null: it does not answer'),
  machine: nodeMachine.nullable().describe('null without an engine, or if it does not answer'),
});
export type NodeRecord = z.infer<typeof nodeRecord>;

export const nodeList = z.object({ at: z.int().describe('Unix ms'), nodes: z.array(nodeRecord) });
export type NodeList = z.infer<typeof nodeList>;

export const NODE_OPERATIONS = describeOperations('platform', NODE_ROUTES, {
  getNodes: {
    summary: 'Show the nodes of the platform with their shards and machines',
    description: 'Only for keys of the operator, the user `owner`.',
    answers: answerJson(nodeList, 'The nodes.', {
      at: 1_768_469_412_000,
      nodes: [
        {
          id: 'local',
          name: null,
          url: null,
          state: 'serving',
          isLeader: true,
          shards: [],
          endpoints: 3,
          self: {
            version: '0.1.0',
            startedAt: 1_768_460_000_000,
            store: { databaseBytes: 4_194_304, freeBytes: 80_000_000_000, warnings: [] },
          },
          machine: {
            engine: 'docker',
            pods: 2,
            memoryGb: { limit: 64, used: 8 },
            vcpus: { limit: 128, used: 4 },
            diskGb: { limit: 800, used: 40 },
            gpus: [],
          },
        },
      ],
    }),
  },
});
