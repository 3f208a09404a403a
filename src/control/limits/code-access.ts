// Decides who may choose the code that pods and workers run. On the process engine that code runs
// as the platform's own user, so it can read every key that the platform can.
import { ProblemError } from '../../wire/problem.ts';
import type { Scope } from '../../wire/routes/route.ts';
import type { EngineKind } from '../endpoints/deployment-rules.ts';

/** How code in pods is isolated from the platform. */
export interface CodeAccess {
  engine: EngineKind;
  /** The operator allows every key with a scope for code to run it as the platform's user. */
  trustKeys: boolean;
  /** The system user that pods run as. Default: the platform's own. */
  podUser?: string | undefined;
}

/** Scopes of operations that choose code. */
const CODE_SCOPES: ReadonlySet<Scope> = new Set(['pods:write', 'endpoints:write']);

/** Whether the scope needs `admin` in addition. */
function isGuarded(scope: Scope, { engine, podUser, trustKeys }: CodeAccess): boolean {
  return engine === 'process' && !trustKeys && podUser === undefined && CODE_SCOPES.has(scope);
}

/** `admin` of one endpoint is not enough. @throws ProblemError `forbidden` */
export function requireCodeAccess(
  holder: { scopes: ReadonlySet<string> } | undefined,
  scope: Scope,
  access: CodeAccess,
): void {
  if (!isGuarded(scope, access) || holder?.scopes.has('admin')) return;
  throw new ProblemError(
    'forbidden',
    `${scope} needs a key with the scope admin, because pods of this platform run as its own user and can read its keys. The operator can run pods as another user with --pod-user, or allow other keys with --trust-keys.`,
  );
}
