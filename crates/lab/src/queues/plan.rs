//! Which queue each tenant has, and of what class each queue is.

use super::arbiter::Class;
use crate::flash::Queues;
use std::str::FromStr;

/// A tenant's queue, as the user names it: `NAME=QUEUE` or `NAME=QUEUE:CLASS`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assigned {
    /// The tenant, or the job.
    pub tenant: String,
    /// The number of its queue, from 0.
    pub queue: u32,
    /// The queue's class; none: what another tenant says, or `medium`.
    pub class: Option<Class>,
}

/// Why tenants cannot have the queues that the user names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// The text does not have the form.
    #[error(
        "{text:?} is not NAME=QUEUE or NAME=QUEUE:CLASS, like mail=0:high; the queues count from 0, \
         and the classes are urgent, high, medium and low"
    )]
    Form {
        /// The text, cut if it is long.
        text: String,
    },
    /// The drive has no queues.
    #[error(
        "the queue of {tenant}: this drive has no submission queues; take one whose file has [queues]"
    )]
    NoQueues {
        /// The tenant.
        tenant: String,
    },
    /// The load has no such tenant.
    #[error("the queue of {tenant}: the load has no tenant of that name; {}", known(.tenants))]
    Tenant {
        /// The name.
        tenant: String,
        /// The names of the load's tenants.
        tenants: Vec<String>,
    },
    /// A tenant has two queues.
    #[error("the queue of {tenant}: a tenant has one queue, and two are named")]
    Twice {
        /// The tenant.
        tenant: String,
    },
    /// The drive has fewer queues.
    #[error("the queue of {tenant}: the drive has no queue {queue}; its last one is {last}")]
    Number {
        /// The tenant.
        tenant: String,
        /// The queue.
        queue: u32,
        /// The drive's last one.
        last: u32,
    },
    /// Arbitration has no classes.
    #[error(
        "the queue of {tenant}: the drive's queues have no classes; give the [queues] of its file the \
         weights high, medium and low"
    )]
    Plain {
        /// The tenant.
        tenant: String,
    },
    /// A queue has two classes.
    #[error("the queue of {tenant}: queue {queue} is {} already, and a queue has one class", .class.name())]
    Class {
        /// The tenant.
        tenant: String,
        /// The queue.
        queue: u32,
        /// The class that another tenant gave it.
        class: Class,
    },
}

fn known(tenants: &[String]) -> String {
    match tenants.is_empty() {
        true => {
            "it has none: take several traces (--tenant), or a job file with several jobs".into()
        }
        false => format!("it has {}", tenants.join(", ")),
    }
}

impl FromStr for Assigned {
    type Err = QueueError;

    fn from_str(text: &str) -> Result<Self, QueueError> {
        let form = || QueueError::Form {
            text: text.chars().take(80).collect(),
        };
        let (tenant, place) = text.rsplit_once('=').ok_or_else(form)?;
        let (queue, class) = match place.split_once(':') {
            None => (place, None),
            Some((queue, name)) => {
                let found = Class::ALL.into_iter().find(|class| class.name() == name);
                (queue, Some(found.ok_or_else(form)?))
            }
        };
        let digits = !queue.is_empty() && queue.bytes().all(|byte| byte.is_ascii_digit());
        match queue.parse() {
            Ok(queue) if digits && !tenant.is_empty() => Ok(Self {
                tenant: tenant.into(),
                queue,
                class,
            }),
            _ => Err(form()),
        }
    }
}

/// The queues of tenants; see the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    of_tenant: Vec<u16>,
    classes: Vec<Class>,
    weighted: bool,
}

impl Plan {
    /// Gives the tenants the queues that the user named, and the others the queues in turn. None if the drive has no queues.
    ///
    /// # Errors
    /// When a tenant cannot have what the user named.
    pub fn new(
        queues: Option<&Queues>,
        tenants: &[&str],
        assigned: &[Assigned],
    ) -> Result<Option<Self>, QueueError> {
        let Some(queues) = queues else {
            return match assigned.first() {
                None => Ok(None),
                Some(first) => Err(QueueError::NoQueues {
                    tenant: first.tenant.clone(),
                }),
            };
        };
        let count = queues.count.max(1);
        let turns = (0..tenants.len()).map(|at| (at % count as usize) as u16);
        let mut plan = Self {
            of_tenant: turns.collect(),
            classes: Vec::new(),
            weighted: queues.weights.is_some(),
        };
        let mut classes = vec![None; count as usize];
        for (at, one) in assigned.iter().enumerate() {
            let tenant = || one.tenant.clone();
            let place = tenants.iter().position(|name| *name == one.tenant);
            let Some(place) = place else {
                return Err(QueueError::Tenant {
                    tenant: tenant(),
                    tenants: tenants.iter().map(|&name| name.into()).collect(),
                });
            };
            if assigned[..at]
                .iter()
                .any(|other| other.tenant == one.tenant)
            {
                return Err(QueueError::Twice { tenant: tenant() });
            }
            let queue = one.queue;
            let Some(class) = classes.get_mut(queue as usize) else {
                let (tenant, last) = (tenant(), count - 1);
                return Err(QueueError::Number {
                    tenant,
                    queue,
                    last,
                });
            };
            plan.of_tenant[place] = queue as u16;
            match (one.class, *class) {
                (Some(_), _) if !plan.weighted => {
                    return Err(QueueError::Plain { tenant: tenant() });
                }
                (Some(new), Some(class)) if new != class => {
                    let tenant = tenant();
                    return Err(QueueError::Class {
                        tenant,
                        queue,
                        class,
                    });
                }
                (new, _) => *class = new.or(*class),
            }
        }
        plan.classes = classes.into_iter().map(Option::unwrap_or_default).collect();
        Ok(Some(plan))
    }

    /// The queue of a tenant. Who is no tenant has the first.
    #[must_use]
    pub fn of(&self, tenant: u8) -> u16 {
        self.of_tenant
            .get(usize::from(tenant))
            .copied()
            .unwrap_or(0)
    }

    /// The class of a queue, if queues have classes.
    #[must_use]
    pub fn class(&self, queue: u16) -> Option<Class> {
        let class = self.classes.get(usize::from(queue)).copied();
        class.filter(|_| self.weighted)
    }

    /// The classes of all queues.
    #[must_use]
    pub fn classes(&self) -> &[Class] {
        &self.classes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flash::Weights;
    use crate::rng::Rng;

    fn queues(count: u32, weighted: bool) -> Queues {
        Queues {
            count,
            weights: weighted.then(Weights::default),
            ..Queues::default()
        }
    }

    fn plan(queues: Option<&Queues>, said: &[&str]) -> Result<Option<Plan>, QueueError> {
        let said: Result<Vec<Assigned>, _> = said.iter().map(|text| text.parse()).collect();
        Plan::new(queues, &["mail", "web", "noise"], &said?)
    }

    #[test]
    fn tenants_take_turns_unless_the_user_names_their_queues() {
        let two = queues(2, true);
        let none = plan(Some(&two), &[]).unwrap().unwrap();
        assert_eq!(
            [0, 1, 2, u8::MAX].map(|tenant| none.of(tenant)),
            [0, 1, 0, 0]
        );
        assert_eq!(none.class(1), Some(Class::Medium));
        let own = plan(Some(&two), &["mail=1:high", "noise=1", "web=0:low"]);
        let own = own.unwrap().unwrap();
        assert_eq!([0, 1, 2].map(|tenant| own.of(tenant)), [1, 0, 1]);
        assert_eq!(own.classes(), [Class::Low, Class::High]);
        let plain = plan(Some(&queues(1, false)), &["mail=0"]).unwrap().unwrap();
        assert_eq!(plain.class(0), None);
        assert_eq!(plan(None, &[]), Ok(None));
    }

    #[test]
    fn an_error_names_the_tenant_and_what_is_allowed() {
        let (plain, weighted) = (queues(2, false), queues(2, true));
        for (queues, said, wanted) in [
            (
                None,
                &["mail=0"][..],
                "no submission queues; take one whose file has [queues]",
            ),
            (Some(&plain), &["post=0"], "it has mail, web, noise"),
            (Some(&plain), &["mail=0", "mail=1"], "two are named"),
            (Some(&plain), &["mail=2"], "no queue 2; its last one is 1"),
            (Some(&plain), &["mail=4294967295"], "no queue 4294967295"),
            (
                Some(&plain),
                &["mail=0:high"],
                "the weights high, medium and low",
            ),
            (
                Some(&weighted),
                &["mail=0:high", "web=0:low"],
                "queue 0 is high already",
            ),
        ] {
            let error = plan(queues, said).unwrap_err().to_string();
            assert!(error.contains(wanted), "{said:?}: {error}");
            assert!(error.contains(&said[0][..4]) || said.len() > 1, "{error}");
        }
        let none = Plan::new(Some(&plain), &[], &["a=0".parse().unwrap()]).unwrap_err();
        assert!(none.to_string().contains("it has none"), "{none}");
    }

    #[test]
    fn a_text_without_the_form_is_refused() {
        for text in [
            "",
            "mail",
            "=0",
            "mail=",
            "mail=x",
            "mail=-1",
            "mail=+1",
            "mail=0:",
            "mail=0:High",
            "mail=4294967296",
            "mail=0:high:low",
        ] {
            let error = text.parse::<Assigned>().unwrap_err().to_string();
            assert!(error.contains("is not NAME=QUEUE"), "{text}: {error}");
        }
        let long = "x".repeat(10_000).parse::<Assigned>().unwrap_err();
        assert!(long.to_string().len() < 400);
        let mut rng = Rng::new(23);
        for _ in 0..20_000 {
            let letters = b"mail=0:high,\xc3\xa91-";
            let text =
                (0..rng.below(20)).map(|_| letters[rng.below(letters.len() as u64) as usize]);
            let text = String::from_utf8_lossy(&text.collect::<Vec<u8>>()).into_owned();
            if let Ok(Assigned { tenant, queue, .. }) = text.parse() {
                assert!(text.starts_with(&format!("{tenant}=")), "{text}");
                assert!(text.contains(&queue.to_string()), "{text}");
            }
        }
        let own: Assigned = "a=b=1:urgent".parse().unwrap();
        assert_eq!((own.tenant.as_str(), own.queue), ("a=b", 1));
    }
}
