#include "millstream/ffi/handlers.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "millstream/core/error.h"
#include "millstream/ffi/delivery.h"
#include "millstream/ffi/registry.h"
#include "millstream/loader/state.h"
#include "xla/ffi/api/ffi.h"

namespace millstream {
namespace {

namespace ffi = xla::ffi;

/// A result, or a future, which costs several allocations.
using Reply = std::variant<ffi::Error, ffi::Future>;

}  // namespace
}  // namespace millstream

template <xla::ffi::ExecutionStage stage>
struct xla::ffi::ResultEncoding<stage, millstream::Reply> {
  static std::variant<XLA_FFI_Error*, XLA_FFI_Future*> Encode(
      const XLA_FFI_Api* api, XLA_FFI_ExecutionContext* context,
      millstream::Reply reply) {
    if (auto* error = std::get_if<Error>(&reply)) {
      return ResultEncoding<stage, Error>::Encode(api, context, std::move(*error));
    }
    return ResultEncoding<stage, Future>::Encode(api, context,
                                                 std::get<Future>(std::move(reply)));
  }
};

namespace millstream {
namespace {

DType dtype_of(ffi::DataType type) {
  switch (type) {
    case ffi::DataType::PRED: return DType::kBool;
    case ffi::DataType::S8: return DType::kInt8;
    case ffi::DataType::S16: return DType::kInt16;
    case ffi::DataType::S32: return DType::kInt32;
    case ffi::DataType::S64: return DType::kInt64;
    case ffi::DataType::U8: return DType::kUint8;
    case ffi::DataType::U16: return DType::kUint16;
    case ffi::DataType::U32: return DType::kUint32;
    case ffi::DataType::U64: return DType::kUint64;
    case ffi::DataType::F16: return DType::kFloat16;
    case ffi::DataType::BF16: return DType::kBfloat16;
    case ffi::DataType::F32: return DType::kFloat32;
    case ffi::DataType::F64: return DType::kFloat64;
    case ffi::DataType::C64: return DType::kComplex64;
    case ffi::DataType::C128: return DType::kComplex128;
    default:
      throw ArgumentError(
          "the call has a result of an element type that Millstream does not support");
  }
}

/// The result buffers of one call. XLA owns them.
class Results {
 public:
  Results(ffi::RemainingRets results, std::size_t count) : results_(results) {
    if (results.size() != count) {
      throw ArgumentError(
          text("the call has ", results.size(), " results, the batch needs ", count));
    }
  }

  /// `columns` over results [first, first + fields), each for `rows` rows.
  void columns(const Schema& schema, std::size_t first, std::int64_t rows,
               std::vector<Column>& columns) const {
    columns.resize(schema.size());
    DType dtype;
    for (std::size_t i = 0; i < schema.size(); ++i) {
      const std::int64_t elements = schema[i].shape.elements();
      std::byte* at = data(first + i, elements * rows, &dtype);
      if (dtype != schema[i].dtype && dtype != narrowed(schema[i].dtype)) {
        throw ArgumentError(
            text(str(schema[i]), " cannot be delivered as ", name(dtype)));
      }
      columns[i] = {dtype, schema[i].shape, at, elements * byte_size(dtype), nullptr};
    }
  }

  bool* mask(std::size_t i, std::int64_t rows) const {
    DType dtype;
    return reinterpret_cast<bool*>(data(i, rows, &dtype));
  }

  std::byte* words(std::size_t i, std::size_t count) const {
    DType dtype;
    return data(i, static_cast<std::int64_t>(count), &dtype);
  }

  /// The data and the dtype of result i. Throws `ArgumentError` if it does not have
  /// `elements` elements.
  std::byte* data(std::size_t i, std::int64_t elements, DType* dtype) const {
    auto result = results_.get<ffi::AnyBuffer>(i);
    if (!result.has_value()) throw ArgumentError(result.error().message());
    const ffi::AnyBuffer& buffer = **result;
    *dtype = dtype_of(buffer.element_type());
    if (static_cast<std::int64_t>(buffer.element_count()) != elements) {
      throw ArgumentError(text("result ", i, " has ", buffer.element_count(),
                               " elements, the batch needs ", elements));
    }
    return static_cast<std::byte*>(buffer.untyped_data());
  }

 private:
  ffi::RemainingRets results_;
};

/// The arguments and results of one call. XLA keeps the buffers valid until the call is
/// answered.
struct Call {
  std::shared_ptr<Loader> loader;
  RowRange rows;
  bool sharded = false;
  std::vector<std::uint32_t> states;
  std::vector<Column> columns;
  bool* mask = nullptr;
  std::byte* after = nullptr;

  std::int64_t count() const {
    return static_cast<std::int64_t>(states.size() / kStateWords);
  }
  std::span<const std::uint32_t, kStateWords> state(std::int64_t k) const {
    return std::span<const std::uint32_t, kStateWords>(states.data() + k * kStateWords,
                                                       kStateWords);
  }
  Position position(std::int64_t k) const { return decoded(loader->plan(), state(k)); }
  /// Delivers the batch of state k. Returns false after `timeout`.
  bool deliver(std::int64_t k, std::chrono::milliseconds timeout) {
    DeliveryRequest request{position(k), columns, mask};
    if (sharded) request.shard = rows;
    request.timeout = timeout;
    return loader->deliver(request).done;
  }
};

std::span<const std::uint32_t> words_of(const ffi::Buffer<ffi::U32>& buffer) {
  return {buffer.typed_data(), buffer.element_count()};
}

/// Builds the call for `states`.
Call call_for(std::shared_ptr<Loader> loader, const RowRange& range,
              std::span<const std::uint32_t> states, ffi::RemainingRets rets) {
  const Schema& schema = loader->plan().schema();
  const std::int64_t rows = range.count;
  const std::size_t fields = schema.size();
  const std::size_t words = states.size();
  if (words % kStateWords != 0) {
    throw ArgumentError(text("a state has ", kStateWords, " words, not ", words));
  }
  const Results results(rets, fields + 2);

  Call call{std::move(loader), range, false, {}, {}, nullptr, nullptr};
  call.states.assign(states.begin(), states.end());
  results.columns(schema, 0, rows * call.count(), call.columns);
  call.mask = results.mask(fields, rows * call.count());
  call.after = results.words(fields + 1, words);
  return call;
}

Call batch_call(std::shared_ptr<Loader> loader, const ffi::Buffer<ffi::U32>& states,
                ffi::RemainingRets rets) {
  const RowRange rows{0, loader->plan().batch_size()};
  return call_for(std::move(loader), rows, words_of(states), rets);
}

Call shard_call(std::shared_ptr<Loader> loader, const ffi::Buffer<ffi::U32>& states,
                const ffi::Buffer<ffi::U32>& number, std::int64_t rows,
                ffi::RemainingRets rets) {
  if (number.element_count() == 0 || rows < 1) {
    throw ArgumentError("a call for a shard needs its number and at least one row");
  }
  const RowRange range{std::int64_t{number.typed_data()[0]} * rows, rows};
  Call call = call_for(std::move(loader), range, words_of(states), rets);
  call.loader->shard_of(range);
  call.sharded = true;
  return call;
}

/// Writes the state that follows state k.
void advance(const Call& call, std::int64_t k) {
  const State next = next_state(call.loader->plan(), call.state(k));
  std::memcpy(call.after + k * static_cast<std::int64_t>(sizeof(State)), next.data(),
              sizeof(State));
}

/// Delivers one batch for each state. Waits for batches that are not ready.
void answer(Call& call) {
  for (std::int64_t k = 0; k < call.count(); ++k) {
    call.deliver(k, DeliveryRequest::kNoTimeout);
    advance(call, k);
    for (Column& column : call.columns) column.data += call.rows.count * column.stride;
    call.mask += call.rows.count;
  }
}

/// Delivers the batch if that needs no waiting; otherwise returns false.
bool answered_at_once(Call& call) {
  if (call.count() != 1) return false;
  if (!call.deliver(0, std::chrono::milliseconds(0))) return false;
  advance(call, 0);
  return true;
}

/// Runs `body` and converts what it throws to an XLA error. The loader, if it is known
/// by then, stores the error for `last_error`.
template <typename Body>
ffi::Error reported(const std::shared_ptr<Loader>& loader, Body&& body) {
  const auto remember = [&] {
    if (loader != nullptr) loader->remember(std::current_exception());
  };
  try {
    body();
    return ffi::Error::Success();
  } catch (const Cancelled& error) {
    return {ffi::ErrorCode::kCancelled, error.what()};
  } catch (const ArgumentError& error) {
    remember();
    return ffi::Error::InvalidArgument(error.what());
  } catch (const DataError& error) {
    remember();
    return {ffi::ErrorCode::kDataLoss, error.what()};
  } catch (const OutOfMemory& error) {
    remember();
    return {ffi::ErrorCode::kResourceExhausted, error.what()};
  } catch (const std::bad_alloc&) {
    remember();
    return {ffi::ErrorCode::kResourceExhausted, OutOfMemory::kUnnamed};
  } catch (const std::exception& error) {
    remember();
    return ffi::Error::Internal(error.what());
  }
}

void check_digest(const Loader& loader, std::int64_t digest) {
  if (static_cast<std::uint64_t>(digest) == loader.plan().digest()) return;
  throw ArgumentError(
      "this program was compiled for another pipeline: compile it again with this "
      "DataLoader");
}

/// Answers the call on this thread, waiting if necessary. `ask` builds the call for the
/// loader.
template <typename Ask>
ffi::Error answered(std::int64_t plan, std::int64_t digest, Ask&& ask) {
  std::shared_ptr<Loader> loader;
  return reported(loader, [&] {
    loader = registered_loader(plan);
    check_digest(*loader, digest);
    Call call = ask(loader);
    answer(call);
  });
}

/// Answers the call at once if possible. Otherwise returns a future, which a delivery
/// thread fulfils.
template <typename Ask>
Reply answered_later(std::int64_t plan, std::int64_t digest, Ask&& ask) {
  std::shared_ptr<Loader> loader;
  Call asked;
  bool done = false;
  ffi::Error error = reported(loader, [&] {
    loader = registered_loader(plan);
    check_digest(*loader, digest);
    asked = ask(loader);
    done = answered_at_once(asked);
  });
  if (done || error.failure()) return error;
  ffi::Promise promise;
  ffi::Future future(promise);
  auto call = std::make_shared<Call>(std::move(asked));
  deliver([promise, call]() mutable {
    ffi::Error late = reported(call->loader, [&] { answer(*call); });
    call.reset();  // XLA continues the user's program on this thread
    if (late.failure()) {
      promise.SetError(late);
    } else {
      promise.SetAvailable();
    }
  });
  return future;
}

ffi::Error in_jit(ffi::Buffer<ffi::U32> states, ffi::RemainingRets results,
                  std::int64_t plan, std::int64_t digest) {
  return answered(plan, digest, [&](const std::shared_ptr<Loader>& loader) {
    return batch_call(loader, states, results);
  });
}

Reply in_jit_later(ffi::Buffer<ffi::U32> states, ffi::RemainingRets results,
                   std::int64_t plan, std::int64_t digest) {
  return answered_later(plan, digest, [&](const std::shared_ptr<Loader>& loader) {
    return batch_call(loader, states, results);
  });
}

ffi::Error shard_at_once(ffi::Buffer<ffi::U32> states, ffi::Buffer<ffi::U32> number,
                         ffi::RemainingRets results, std::int64_t plan,
                         std::int64_t digest, std::int64_t rows) {
  return answered(plan, digest, [&](const std::shared_ptr<Loader>& loader) {
    return shard_call(loader, states, number, rows, results);
  });
}

Reply shard_later(ffi::Buffer<ffi::U32> states, ffi::Buffer<ffi::U32> number,
                  ffi::RemainingRets results, std::int64_t plan, std::int64_t digest,
                  std::int64_t rows) {
  return answered_later(plan, digest, [&](const std::shared_ptr<Loader>& loader) {
    return shard_call(loader, states, number, rows, results);
  });
}

std::shared_ptr<Loader> loader_numbered(const ffi::Buffer<ffi::U32>& number) {
  const std::span<const std::uint32_t> words = words_of(number);
  if (words.size() != 2) {
    throw ArgumentError(text("the number of a loader has 2 words, not ", words.size()));
  }
  return registered_loader(
      static_cast<std::int64_t>((std::uint64_t{words[1]} << 32) | words[0]));
}

ffi::Error on_host(ffi::Buffer<ffi::U32> first, ffi::Buffer<ffi::U32> number,
                   ffi::RemainingRets rets) {
  std::shared_ptr<Loader> loader;
  return reported(loader, [&] {
    loader = loader_numbered(number);
    const Plan& plan = loader->plan();
    const Schema& schema = plan.schema();
    const std::size_t each = schema.size() + 1;
    const std::size_t steps = std::max<std::size_t>((rets.size() - 1) / each, 1);
    const Results results(rets, steps * each + 1);
    if (first.element_count() != kStateWords) {
      throw ArgumentError(
          text("a state has ", kStateWords, " words, not ", first.element_count()));
    }
    State state;
    std::ranges::copy(words_of(first), state.begin());
    std::vector<Column> columns;
    for (std::size_t step = 0; step < steps; ++step) {
      results.columns(schema, step * each, plan.batch_size(), columns);
      bool* mask = results.mask(step * each + schema.size(), plan.batch_size());
      loader->deliver({.position = decoded(plan, state),
                       .output = columns,
                       .mask = mask,
                       .held_back = step > 0});
      state = next_state(plan, state);
    }
    std::memcpy(results.words(steps * each, kStateWords), state.data(), sizeof(State));
  });
}

ffi::Error samples_in_jit(ffi::Buffer<ffi::U32> states, ffi::RemainingRets rets,
                          std::int64_t plan, std::int64_t digest) {
  std::shared_ptr<Loader> loader;
  return reported(loader, [&] {
    loader = registered_loader(plan);
    check_digest(*loader, digest);
    const Plan& schedules = loader->plan();
    const std::int64_t rows = schedules.batch_size();
    const auto words = static_cast<std::int64_t>(states.element_count());
    const std::size_t lists = rets.size() == 4 ? 2 : 1;
    const Results results(rets, lists + 2);
    DType dtype;
    const std::int64_t elements = rows * (words / kStateWords);
    auto* indices = reinterpret_cast<std::uint32_t*>(results.data(0, elements, &dtype));
    std::uint32_t* epochs = nullptr;
    if (lists == 2) {
      epochs = reinterpret_cast<std::uint32_t*>(results.data(1, elements, &dtype));
    }
    auto* mask = reinterpret_cast<bool*>(results.data(lists, elements, &dtype));
    std::byte* after = results.data(lists + 1, words, &dtype);
    std::vector<std::int64_t> samples(static_cast<std::size_t>(rows));
    for (std::int64_t k = 0; k < words; k += kStateWords) {
      const std::span<const std::uint32_t, kStateWords> state(states.typed_data() + k,
                                                              kStateWords);
      const Position position = decoded(schedules, state);
      schedules.schedule().run(position, 0, samples);
      if (epochs != nullptr) {
        schedules.schedule().epochs(position, 0, {epochs, samples.size()});
        epochs += rows;
      }
      for (const std::int64_t sample : samples) {
        *mask++ = sample >= 0;
        *indices++ = static_cast<std::uint32_t>(std::max<std::int64_t>(sample, 0));
      }
      const State next = next_state(schedules, state);
      std::memcpy(after, next.data(), sizeof(State));
      after += sizeof(State);
    }
  });
}

/// The arguments of the handlers that answer with whole batches.
auto batch_binding() {
  return ffi::Ffi::Bind()
      .Arg<ffi::Buffer<ffi::U32>>()
      .RemainingRets()
      .Attr<std::int64_t>("plan")
      .Attr<std::int64_t>("digest");
}

/// The arguments of `shard_at_once` and `shard_later`.
auto shard_binding() {
  return ffi::Ffi::Bind()
      .Arg<ffi::Buffer<ffi::U32>>()
      .Arg<ffi::Buffer<ffi::U32>>()
      .RemainingRets()
      .Attr<std::int64_t>("plan")
      .Attr<std::int64_t>("digest")
      .Attr<std::int64_t>("rows");
}

}  // namespace

XLA_FFI_Error* batch_in_jit(XLA_FFI_CallFrame* frame) {
  static const auto handler = batch_binding().To(in_jit);
  return handler->Call(frame);
}

XLA_FFI_Error* batch_in_jit_later(XLA_FFI_CallFrame* frame) {
  static const auto handler = batch_binding().To(in_jit_later);
  return handler->Call(frame);
}

XLA_FFI_Error* indices_in_jit(XLA_FFI_CallFrame* frame) {
  static const auto handler = batch_binding().To(samples_in_jit);
  return handler->Call(frame);
}

XLA_FFI_Error* shard_in_jit(XLA_FFI_CallFrame* frame) {
  static const auto handler = shard_binding().To(shard_at_once);
  return handler->Call(frame);
}

XLA_FFI_Error* shard_in_jit_later(XLA_FFI_CallFrame* frame) {
  static const auto handler = shard_binding().To(shard_later);
  return handler->Call(frame);
}

XLA_FFI_Error* batches_on_host(XLA_FFI_CallFrame* frame) {
  static const auto handler = ffi::Ffi::Bind()
                                  .Arg<ffi::Buffer<ffi::U32>>()
                                  .Arg<ffi::Buffer<ffi::U32>>()
                                  .RemainingRets()
                                  .To(on_host);
  return handler->Call(frame);
}

}  // namespace millstream
