// All attacks, in the order in which they are run on the platform that they share.
import type { Attack } from './attack.ts';
import { bodyAttacks } from './attacks/bodies.ts';
import { connectionAttacks } from './attacks/connections.ts';
import { eventStreamAttacks } from './attacks/event-streams.ts';
import { grpcAttacks } from './attacks/grpc.ts';
import { headAttacks } from './attacks/heads.ts';
import { heldByteAttacks } from './attacks/held-bytes.ts';
import { resourceAttacks } from './attacks/resources.ts';
import { upgradeAttacks } from './attacks/upgrades.ts';
import { webhookAttacks } from './attacks/webhooks.ts';
import { workerMessageAttacks } from './attacks/worker-messages.ts';

export const ATTACKS: readonly Attack[] = [
  ...headAttacks,
  ...bodyAttacks,
  ...grpcAttacks,
  ...workerMessageAttacks,
  ...connectionAttacks,
  ...heldByteAttacks,
  ...eventStreamAttacks,
  ...webhookAttacks,
  ...resourceAttacks,
  ...upgradeAttacks,
];
