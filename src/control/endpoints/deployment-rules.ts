// What an endpoint's workers can be made from, and how many there may be. Pure.
import type { Engine } from '../../engine/engine.ts';
import type { EndpointDeployment, EndpointType } from '../../wire/resources/endpoint.ts';
import type { TemplateRecord } from '../../wire/resources/template.ts';

/** What runs workers; `none` where a platform only has those that come from elsewhere. */
export type EngineKind = Engine['kind'] | 'none';

export interface TemplateUse {
  engine: EngineKind;
  type: EndpointType;
  template: Pick<TemplateRecord, 'args' | 'handler' | 'id' | 'ports'>;
}

/** Why workers cannot be made from the template; undefined if they can. */
export function findTemplateFault({ engine, template, type }: TemplateUse): string | undefined {
  const { args, handler, id, ports } = template;
  if (type === 'LOAD_BALANCER' && !ports.some((port) => port.endsWith('/http'))) {
    return `template ${id} has no http port, and requests to a load-balancing endpoint go to one`;
  }
  if (engine === 'process' && handler === null && args.trim() === '') {
    return `template ${id} has neither handler nor args, and images are not started here`;
  }
  return undefined;
}

/** The faults between the parts of a deployment, as a problem's `errors` have them. */
export function judgeDeployment({
  scaler,
  type,
  workersMax,
  workersMin,
}: EndpointDeployment): string[] {
  const errors: string[] = [];
  if (workersMin > workersMax) errors.push('workersMin: must not be greater than workersMax');
  if (type === 'LOAD_BALANCER' && scaler.type === 'QUEUE_DELAY') {
    errors.push('scaler.type: must be REQUEST_COUNT for a load-balancing endpoint');
  }
  return errors;
}
