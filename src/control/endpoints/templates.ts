// Manages templates, from which pods and workers of endpoints are created. All are in memory,
// because every reconcile pass reads the template of its endpoint.
import { isDeepStrictEqual } from 'node:util';
import { z } from 'zod';
import type { Clock } from '../../base/clock.ts';
import type { Engine } from '../../engine/engine.ts';
import { OWNER, type Store, type Transaction } from '../../store/store.ts';
import type { PodKubernetes } from '../../wire/engine/kubernetes.ts';
import { ProblemError } from '../../wire/problem.ts';
import { storedShape } from '../../wire/resources/field-schemas.ts';
import {
  type EndpointType,
  type HandlerSource,
  TEMPLATE_FIELDS,
} from '../../wire/resources/fields.ts';
import {
  type TemplateCreation,
  type TemplateRecord,
  type TemplateUpdate,
  templateRecord,
} from '../../wire/resources/template.ts';
import type { Quotas } from '../limits/quotas.ts';
import { checkArgs, type EngineTraits, findKubernetesFaults } from '../pods/pod-spec.ts';
import {
  openVariables,
  SecretSealer,
  sealVariables,
  storedVariables,
  unopenedVariables,
} from '../registries/sealed-secret.ts';
import { StoredResources } from '../stored-resources.ts';
import type { UserCatalog } from './catalog.ts';

export interface TemplatesOptions {
  store: Store;
  clock: Clock;
  engine: EngineKind;
  /** What it can do for a pod. Default: nothing that templates could ask of Kubernetes. */
  traits?: EngineTraits | undefined;
  catalog: Pick<UserCatalog, 'judgeRegistry' | 'resolveRegistry'>;
  /** Default: DEFAULT_QUOTAS. */
  quotas?: Quotas | undefined;
  /** Says why workers could not load the handler. Default: nobody knows before they start. */
  findHandlerFault?: ((path: string) => string | undefined) | undefined;
  /** Seals the variables of stored templates. Default: no key, so they are stored in the clear. */
  sealer?: SecretSealer | undefined;
}

const liveTemplate = templateRecord.extend({
  ...storedShape(TEMPLATE_FIELDS),
  unopened: unopenedVariables.exactOptional(),
  /** What an adapter of the API keeps with it. Millrace's own API neither shows nor sets it. */
  notes: z.record(z.string(), z.unknown()).exactOptional(),
});
/** As it is in memory. */
export type LiveTemplate = z.infer<typeof liveTemplate>;

const storedTemplate = z.looseObject({ id: z.string(), env: storedVariables });
/** What its use by an endpoint depends on. */
const usableTemplate = liveTemplate.omit({ env: true, unopened: true });

/**
 * When a template changes, pods created from it stay as they are, and workers of endpoints are
 * replaced. If an endpoint forbids the change or removal, it is a `conflict`.
 */
export type Templates = StoredResources<
  TemplateCreation & WithNotes,
  TemplateUpdate & WithNotes,
  LiveTemplate
>;

type WithNotes = Partial<Pick<LiveTemplate, 'notes'>>;

export function openTemplates(options: TemplatesOptions): Promise<Templates> {
  const { catalog, engine, findHandlerFault, sealer = new SecretSealer([]), traits } = options;
  const ownerOf = (userId: string, id: string) => ({ kind: 'template', userId, id }) as const;
  return StoredResources.open<
    TemplateCreation & WithNotes,
    TemplateUpdate & WithNotes,
    LiveTemplate
  >({
    ...options,
    name: 'templates',
    prefix: 'tpl',
    record: liveTemplate,
    stored: {
      read(body, userId) {
        const stored = storedTemplate.parse(body);
        return { ...stored, ...openVariables(sealer, stored.env, ownerOf(userId, stored.id)) };
      },
      write({ unopened, ...template }, userId) {
        const { env, id } = template;
        const kept = { env, ...(unopened && { unopened }) };
        return { ...template, env: sealVariables(sealer, kept, ownerOf(userId, id)) };
      },
    },
    rules: {
      compose: ({ createdAt, id }, creation) => ({ id, ...creation, createdAt, version: 1 }),
      change,
      resolveNames(userId, given) {
        const { registry } = given;
        if (typeof registry !== 'string') return given;
        return { ...given, registry: catalog.resolveRegistry(userId, registry) };
      },
      admit(userId, { args, handler, kubernetes, registry }) {
        checkArgs(args);
        // Only the operator may learn which files the machine has.
        const fault = handler && userId === OWNER && findHandlerFault?.(handler);
        if (fault) throw new ProblemError('invalid', fault, { errors: [fault] });
        const errors = registry === undefined ? [] : catalog.judgeRegistry(userId, registry);
        if (kubernetes) errors.push(...judgeKubernetes(kubernetes, traits));
        if (errors.length > 0) throw new ProblemError('invalid', errors.join('; '), { errors });
      },
      judgeChange(tx, template) {
        for (const { id, ...use } of listUsers(tx, template.id)) {
          const fault = findTemplateFault({ engine, template, ...use });
          if (fault) throw new ProblemError('conflict', `endpoint ${id} uses it: ${fault}`);
        }
      },
      judgeRemoval(tx, id) {
        const [user] = listUsers(tx, id);
        if (user) throw new ProblemError('conflict', `endpoint ${user.id} uses template ${id}`);
      },
    },
  });
}

/**
 * Reads the template inside the operation that uses it, so that it cannot be removed in between.
 * Undefined if it does not exist or belongs to another user.
 */
export function readTemplate(
  tx: Transaction,
  userId: string,
  id: string,
): z.infer<typeof usableTemplate> | undefined {
  const stored = tx.resource({ kind: 'template', id });
  return stored?.userId === userId ? usableTemplate.parse(JSON.parse(stored.body)) : undefined;
}

/** Engine of the workers; `none` if the platform starts no workers. */
export type EngineKind = Engine['kind'] | 'none';

interface TemplateUse {
  engine: EngineKind;
  type: EndpointType;
  source: HandlerSource;
  template: Pick<TemplateRecord, 'args' | 'handler' | 'id' | 'ports'>;
}

/** Returns why workers cannot use the template; undefined if they can. */
export function findTemplateFault({
  engine,
  source,
  template,
  type,
}: TemplateUse): string | undefined {
  const { args, handler, id, ports } = template;
  if (type === 'LOAD_BALANCER' && !ports.some((port) => port.endsWith('/http'))) {
    return `template ${id} has no http port, and requests to a load-balancing endpoint go to one`;
  }
  if (engine === 'process' && source === 'TEMPLATE' && handler === null && args.trim() === '') {
    return `template ${id} has neither handler nor args, and images are not started here`;
  }
  return undefined;
}

function judgeKubernetes(wanted: PodKubernetes, traits: EngineTraits | undefined): string[] {
  if (traits) return findKubernetesFaults(wanted, traits);
  return ['kubernetes: not available: this platform runs without an engine; leave it out'];
}

/** A new name does not replace workers, and neither do new notes. */
function change(template: LiveTemplate, update: TemplateUpdate & WithNotes): LiveTemplate {
  const { kubernetes: updated, ...fields } = update;
  const { kubernetes: before, unopened, ...kept } = template;
  const kubernetes = updated === undefined ? before : updated;
  const changed = {
    ...kept,
    ...fields,
    ...(kubernetes && { kubernetes }),
    ...(unopened && fields.env === undefined && { unopened }),
  };
  const beside = { name: '', notes: {} };
  const isSame = isDeepStrictEqual({ ...changed, ...beside }, { ...template, ...beside });
  return isSame ? changed : { ...changed, version: template.version + 1 };
}

function listUsers(
  tx: Transaction,
  templateId: string,
): { id: string; type: EndpointType; source: HandlerSource }[] {
  const endpoints = tx.endpoints();
  return endpoints.flatMap(({ deleted, deployment, id }) =>
    !deleted && deployment?.templateId === templateId
      ? [{ id, type: deployment.type, source: deployment.source }]
      : [],
  );
}
