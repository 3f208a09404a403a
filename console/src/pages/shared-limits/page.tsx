// The limits that endpoints share: list, create, change and delete.
import { spellRate } from '../../../../src/wire/resources/field.ts';
import { SHARED_LIMIT_FIELDS } from '../../../../src/wire/resources/fields.ts';
import { ResourceForm } from '../../parts/forms/resource-form.tsx';
import { Empty } from '../../parts/list/empty.tsx';
import { ResourceList } from '../../parts/list/resource-list.tsx';
import { platform } from '../../platform/calls.ts';
import { may } from '../../platform/session.ts';

export function Page() {
  return (
    <ResourceList
      title="Shared limits"
      kind="shared limit"
      resource={platform.sharedLimits}
      mayChange={() => may('endpoints:write')}
      form={(props) => (
        <ResourceForm
          noun="shared limit"
          fields={SHARED_LIMIT_FIELDS}
          target={platform.sharedLimits}
          {...props}
        />
      )}
      columns={[{ name: 'Jobs per time' }, { name: 'Jobs at once' }, { name: 'For' }]}
      cells={({ concurrency, key, rateLimit }) => (
        <>
          <td class="mono">{rateLimit ? spellRate(rateLimit) : '–'}</td>
          <td>{concurrency ?? '–'}</td>
          <td>{key === null ? 'all jobs' : 'each group'}</td>
        </>
      )}
      deletion={() => 'The platform refuses this while an endpoint names the limit.'}
      empty={
        <Empty title="No shared limits yet" command="millrace shared-limits create --help">
          A shared limit bounds the jobs of several endpoints together. Name it in their settings.
          Create one:
        </Empty>
      }
    />
  );
}
