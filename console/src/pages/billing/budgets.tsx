// The budgets: what is spent of each, create, change and delete.
import type { BudgetRecord } from '../../../../src/client.ts';
import { BUDGET_FIELDS } from '../../../../src/wire/resources/fields.ts';
import { Badge, type Tone } from '../../parts/badge.tsx';
import { Meter } from '../../parts/figures/meter.tsx';
import { ResourceForm } from '../../parts/forms/resource-form.tsx';
import { Empty } from '../../parts/list/empty.tsx';
import { ResourceList } from '../../parts/list/resource-list.tsx';
import { platform } from '../../platform/calls.ts';
import { isOperator, may } from '../../platform/session.ts';
import { hrefOf } from '../../routing/location.ts';
import { pathOf } from '../endpoint/frame.tsx';

const COLUMNS = [
  { name: 'State' },
  { name: 'Of' },
  { name: 'User' },
  { name: 'Period' },
  { name: 'Spent, USD' },
];

const STATES: Readonly<Record<BudgetRecord['state'], { text: string; tone: Tone; title: string }>> =
  {
    ok: { text: 'OK', tone: 'good', title: 'Pods and workers start' },
    warning: { text: 'Warning', tone: 'warn', title: 'The budget is nearly used up' },
    used_up: {
      text: 'Used up',
      tone: 'bad',
      title:
        'No new pods or workers start, and no volumes are created, before the next period. Running ones continue',
    },
  };

const { userId: _user, ...OWN_FIELDS } = BUDGET_FIELDS;
// The operator cannot list the endpoints of others.
const { refersTo: _endpoints, ...endpointId } = BUDGET_FIELDS.endpointId;
const ALL_FIELDS = { ...BUDGET_FIELDS, endpointId };

export function Budgets() {
  // The operator sees and sets the budgets of all users.
  const actsForAll = isOperator() && may('admin');
  const listed = actsForAll ? platform.budgets.ofUser('*') : platform.budgets;
  return (
    <ResourceList
      title="Budgets"
      isSection
      kind="budget"
      resource={{ page: listed.page, delete: platform.budgets.delete }}
      mayChange={(budget) =>
        may('endpoints:write') && (budget?.setBy !== 'operator' || isOperator())
      }
      form={(props) => (
        <ResourceForm
          noun="budget"
          fields={actsForAll ? ALL_FIELDS : OWN_FIELDS}
          target={platform.budgets}
          {...props}
        />
      )}
      columns={COLUMNS}
      cells={(budget) => <Cells budget={budget} />}
      deletion={() => 'Pods and workers that it holds back can start again.'}
      empty={
        <Empty title="No budgets yet" command="millrace budgets create --name month --limit 500">
          When a budget is exhausted, no new pods or workers start. Create one:
        </Empty>
      }
    />
  );
}

function Cells({ budget }: { budget: BudgetRecord }) {
  const { endpointId, endpointName, limit, name, period, setBy, spent, state, userId } = budget;
  return (
    <>
      <td>
        <Badge {...STATES[state]} />
      </td>
      <td>
        {endpointId ? (
          <a href={hrefOf(pathOf(endpointId))} title={endpointId}>
            {endpointName ?? endpointId}
          </a>
        ) : (
          'All pods, endpoints and volumes'
        )}
      </td>
      <td>
        {userId}
        {setBy === 'operator' && <small>set by the operator</small>}
      </td>
      <td>{period === 'day' ? 'Day (UTC)' : 'Month (UTC)'}</td>
      <td title={`${spent} USD`}>
        <Meter label={`Spent of ${name}`} used={Number(spent)} limit={limit} />
      </td>
    </>
  );
}
