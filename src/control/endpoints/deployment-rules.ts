// Checks whether a template suits an endpoint's workers. Pure.
import type { Engine } from '../../engine/engine.ts';
import type { EndpointType, HandlerSource } from '../../wire/resources/endpoint.ts';
import type { TemplateRecord } from '../../wire/resources/template.ts';

/** Engine of the workers; `none` if the platform starts no workers. */
export type EngineKind = Engine['kind'] | 'none';

export interface TemplateUse {
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
