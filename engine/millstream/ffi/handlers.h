#pragma once

#include "xla/ffi/api/c_api.h"

namespace millstream {

/// The batch that a state names, inside jit.
///
/// Operand: states, uint32[..., 8]. Results: the fields of the batch, the mask, and the
/// states after it. Attributes: "plan", the number under which the loader is
/// registered, and "digest", its plan's.
XLA_FFI_Error* batch_in_jit(XLA_FFI_CallFrame* frame);

/// The same for sources that have to be waited for: if the batch is not made yet, XLA
/// gets a future, which a delivery thread fulfils; never XLA's own thread or a worker.
XLA_FFI_Error* batch_in_jit_later(XLA_FFI_CallFrame* frame);

/// Which samples the batch has, for a program that gathers them itself.
///
/// Operand and attributes as above. Results: the samples, uint32[..., rows], 0 in
/// padding; the mask; and the states after the batch.
XLA_FFI_Error* indices_in_jit(XLA_FFI_CallFrame* frame);

/// One shard of the batch that a state names, inside a program that runs on many
/// devices: as many rows as the results have, from the shard's place on.
///
/// Operands: states, uint32[..., 8], and the shard's number, uint32[...], the same for
/// all states. Results and attributes as for `batch_in_jit`.
XLA_FFI_Error* shard_in_jit(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* shard_in_jit_later(XLA_FFI_CallFrame* frame);

/// The batch that a state names, for a Python loop: as `batch_in_jit`, but the operand
/// and the last result are uint32[10]. The loader's number (low, high) follows the
/// state, so that loaders of one shape share a program.
XLA_FFI_Error* batch_on_host(XLA_FFI_CallFrame* frame);

}  // namespace millstream
