// The paths below `/lb/<endpoint>`: what comes behind the id is the worker's, byte for byte, so that it
// is cut off before the router, which reads and decodes paths, gets to see it.
import { LB_BASE } from '../../wire/routes.ts';

/** A target may be a whole URL. The id goes as far as anything goes that can be an id. */
const LB_TARGET = new RegExp(`^((?:https?://[^/?#]*)?${LB_BASE}/[^/?#]+)(.*)$`, 's');

/** What the router is to see: all other targets stay as they are. */
export function foldTarget(target: string): string {
  return LB_TARGET.exec(target)?.[1] ?? target;
}

export function isBalancedTarget(target: string): boolean {
  return LB_TARGET.test(target);
}

/** Path and query for the worker, as they came: nothing is decoded, resolved or joined. */
export function cutTarget(target: string): string {
  const rest = LB_TARGET.exec(target)?.[2] ?? '';
  return rest.startsWith('/') ? rest : `/${rest}`;
}
