// The OpenAPI document against Redocly's recommended rules: no error, and no warning that is not explained here.
import { createConfig, lintFromString } from '@redocly/openapi-core';
import { expect, it } from 'vitest';
import { createOpenApi } from '../../../../src/api/openapi/openapi.ts';
import { packageVersion } from '../../../../src/base/package-info.ts';

/** Findings that stay, by rule. */
const EXPLAINED: Readonly<Record<string, string>> = {
  // The service's API has both `/v2/{endpoint}/run` and `/v2/pods/{pod}`; no endpoint can be called `pods`.
  'no-ambiguous-paths': '/v2/{endpoint}/',
  // It answers methods that the document does not have.
  'no-unused-components': 'Problem405',
};

it('has no unexplained Redocly finding', async () => {
  const source = JSON.stringify(createOpenApi(packageVersion()));
  const config = await createConfig({ extends: ['recommended'] });
  const findings = await lintFromString({ source, absoluteRef: 'openapi.json', config });
  const unexplained = findings.filter(({ message, ruleId }) => {
    const known = EXPLAINED[ruleId];
    return known === undefined || !message.includes(known);
  });
  const lines = unexplained.map(({ location, message, ruleId, severity }) => {
    const [{ pointer = '' } = {}] = location;
    return `${severity} ${ruleId} at ${pointer}: ${message}`;
  });
  expect(lines).toEqual([]);
});
