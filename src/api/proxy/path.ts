// Cuts paths below `/lb/<endpoint>` before the router reads and decodes them: the part after the ID
// belongs to the worker, byte for byte.
import { LB_BASE } from '../../wire/routes/routes.ts';

/** A target may be an absolute URL. The ID ends where no ID could continue. */
const LB_TARGET = new RegExp(`^((?:https?://[^/?#]*)?(${LB_BASE}/[^/?#]+))(.*)$`, 's');

/** Returns the target for the router; all other targets stay unchanged. */
export function foldTarget(target: string): string {
  // No pattern is needed for the targets of the API itself.
  if (target.startsWith('/') && !target.startsWith(LB_BASE)) return target;
  return LB_TARGET.exec(target)?.[1] ?? target;
}

export function isBalancedTarget(target: string): boolean {
  return LB_TARGET.test(target);
}

/** Returns the part of the path that the worker does not see, as the client wrote it. */
export function cutPrefix(target: string): string {
  return LB_TARGET.exec(target)?.[2] ?? '';
}

/** Returns path and query for the worker, unchanged: nothing is decoded, resolved or joined. */
export function cutTarget(target: string): string {
  const rest = LB_TARGET.exec(target)?.[3] ?? '';
  return rest.startsWith('/') ? rest : `/${rest}`;
}
