use std::{
    fmt,
    ops::ControlFlow,
    sync::{Mutex, PoisonError},
    thread::{self, ThreadId},
};

type Callback<E> = Box<dyn FnMut(E) -> ControlFlow<()> + Send>;

/// A callback that another thread calls until it is closed, from then on never again.
pub(super) struct Gate<E> {
    callback: Mutex<Option<Callback<E>>>,
    /// The thread that is in the callback.
    within: Mutex<Option<ThreadId>>,
}

impl<E> Gate<E> {
    pub(super) fn new(callback: impl FnMut(E) -> ControlFlow<()> + Send + 'static) -> Self {
        Self {
            callback: Mutex::new(Some(Box::new(callback))),
            within: Mutex::new(None),
        }
    }

    /// Calls the callback. `Break` if it said so, or the gate is closed.
    pub(super) fn deliver(&self, event: E) -> ControlFlow<()> {
        let mut callback = lock(&self.callback);
        let Some(call) = callback.as_mut() else {
            return ControlFlow::Break(());
        };
        *lock(&self.within) = Some(thread::current().id());
        let flow = call(event);
        // Whoever closed the gate within the callback could not take it out.
        let closed = lock(&self.within).take().is_none();
        if closed || flow.is_break() {
            *callback = None;
            return ControlFlow::Break(());
        }
        flow
    }

    /// Waits for a call that goes on, and drops the callback. Within the callback it waits for nothing.
    pub(super) fn close(&self) {
        let mut within = lock(&self.within);
        if *within == Some(thread::current().id()) {
            *within = None;
            return;
        }
        drop(within);
        *lock(&self.callback) = None;
    }
}

impl<E> fmt::Debug for Gate<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").finish_non_exhaustive()
    }
}

/// A panic in the callback was the caller's and has been reported on its thread.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};

    use super::*;

    #[test]
    fn a_closed_gate_has_dropped_its_callback() {
        let (sender, receiver) = mpsc::channel();
        let gate = Gate::new(move |event| {
            let _ = sender.send(event);
            ControlFlow::Continue(())
        });
        assert!(gate.deliver(1).is_continue());
        gate.close();
        assert!(gate.deliver(2).is_break());
        assert_eq!(receiver.iter().collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn a_gate_can_be_closed_from_within() {
        let gate = Arc::new(Mutex::new(None::<Arc<Gate<u32>>>));
        let inner = Arc::clone(&gate);
        let made = Arc::new(Gate::new(move |_| {
            if let Some(gate) = inner.lock().unwrap().as_ref() {
                gate.close();
            }
            ControlFlow::Continue(())
        }));
        *gate.lock().unwrap() = Some(Arc::clone(&made));
        assert!(made.deliver(1).is_break());
        assert!(made.deliver(2).is_break());
    }

    #[test]
    fn a_callback_that_breaks_is_dropped() {
        let (sender, receiver) = mpsc::channel();
        let gate = Gate::new(move |event| {
            let _ = sender.send(event);
            ControlFlow::Break(())
        });
        assert!(gate.deliver(1).is_break());
        assert_eq!(receiver.iter().collect::<Vec<_>>(), [1]);
    }
}
