#include "millstream/ffi/handlers.h"

#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <string>

#include "millstream/core/error.h"
#include "millstream/ffi/live.h"
#include "millstream/loader/state.h"
#include "xla/ffi/api/ffi.h"

namespace millstream {
namespace {

namespace ffi = xla::ffi;

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
    default: throw ArgumentError("a result of a type that no field has");
  }
}

/// The result buffers of one call. Borrows them.
class Results {
 public:
  Results(ffi::RemainingRets results, std::size_t count) : results_(results) {
    if (results.size() != count) {
      throw ArgumentError(
          text("the call has ", results.size(), " results, the batch needs ", count));
    }
  }

  /// The bytes of result i, which must have that many elements, and their dtype.
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

/// One batch for each of `count` states.
void make(Loader& loader, const std::uint32_t* states, std::int64_t count,
          const Results& results, bool with_mask) {
  const Plan& plan = loader.plan();
  const Schema& schema = plan.schema();
  const std::int64_t rows = plan.batch_size();
  const std::size_t fields = schema.size();

  std::vector<Column> columns(fields);
  DType dtype;
  for (std::size_t i = 0; i < fields; ++i) {
    const std::int64_t elements = schema[i].shape.elements();
    std::byte* data = results.data(i, elements * rows * count, &dtype);
    if (dtype != schema[i].dtype && dtype != narrowed(schema[i].dtype)) {
      throw ArgumentError(text(str(schema[i]), " cannot be given as ", name(dtype)));
    }
    columns[i] = {dtype, schema[i].shape, data, elements * byte_size(dtype), nullptr};
  }
  bool* mask = nullptr;
  if (with_mask) {
    mask = reinterpret_cast<bool*>(results.data(fields, rows * count, &dtype));
  }
  std::byte* after =
      results.data(fields + (with_mask ? 1 : 0),
                   count * static_cast<std::int64_t>(kStateWords), &dtype);

  for (std::int64_t k = 0; k < count; ++k) {
    const std::span<const std::uint32_t, kStateWords> state(states + k * kStateWords,
                                                            kStateWords);
    const Position position = decoded(plan, state);
    loader.fill(position, columns, mask);
    State next = encoded(plan, plan.schedule().next(position));
    next[6] = state[6];
    next[7] = state[7];
    std::memcpy(after + k * static_cast<std::int64_t>(sizeof(State)), next.data(),
                sizeof(State));
    for (Column& column : columns) column.data += rows * column.stride;
    if (mask != nullptr) mask += rows;
  }
}

/// Runs `body` and turns what it throws into what XLA reports.
template <typename Body>
ffi::Error reported(Loader* loader, Body&& body) {
  try {
    body();
    return ffi::Error::Success();
  } catch (const Cancelled& error) {
    return {ffi::ErrorCode::kCancelled, error.what()};
  } catch (const ArgumentError& error) {
    if (loader != nullptr) loader->remember(std::current_exception());
    return ffi::Error::InvalidArgument(error.what());
  } catch (const DataError& error) {
    if (loader != nullptr) loader->remember(std::current_exception());
    return {ffi::ErrorCode::kDataLoss, error.what()};
  } catch (const std::exception& error) {
    if (loader != nullptr) loader->remember(std::current_exception());
    return ffi::Error::Internal(error.what());
  }
}

ffi::Error run(const ffi::Buffer<ffi::U32>& states, ffi::RemainingRets results,
               std::int64_t serial, const std::int64_t* digest, bool with_mask) {
  std::shared_ptr<Loader> loader;
  ffi::Error found = reported(nullptr, [&] { loader = listed_loader(serial); });
  if (found.failure()) return found;
  return reported(loader.get(), [&] {
    const Plan& plan = loader->plan();
    if (digest != nullptr && static_cast<std::uint64_t>(*digest) != plan.digest()) {
      throw ArgumentError("this program was compiled for a pipeline of another shape");
    }
    const std::size_t words = states.element_count();
    if (words % kStateWords != 0) {
      throw ArgumentError(text("a state has ", kStateWords, " words, not ", words));
    }
    make(*loader, states.typed_data(), static_cast<std::int64_t>(words / kStateWords),
         Results(results, plan.schema().size() + (with_mask ? 2 : 1)), with_mask);
  });
}

ffi::Error in_jit(ffi::Buffer<ffi::U32> states, ffi::RemainingRets results,
                  std::int64_t plan, std::int64_t digest) {
  return run(states, results, plan, &digest, true);
}

ffi::Error on_host(ffi::Buffer<ffi::U32> states, ffi::Buffer<ffi::U32> plan,
                   ffi::RemainingRets results) {
  const std::uint32_t* words = plan.typed_data();
  const std::uint64_t serial = (std::uint64_t{words[1]} << 32) | words[0];
  return run(states, results, static_cast<std::int64_t>(serial), nullptr, false);
}

}  // namespace

XLA_FFI_Error* batch_in_jit(XLA_FFI_CallFrame* frame) {
  static const auto handler = ffi::Ffi::Bind()
                                  .Arg<ffi::Buffer<ffi::U32>>()
                                  .RemainingRets()
                                  .Attr<std::int64_t>("plan")
                                  .Attr<std::int64_t>("digest")
                                  .To(in_jit);
  return handler->Call(frame);
}

XLA_FFI_Error* batch_on_host(XLA_FFI_CallFrame* frame) {
  static const auto handler = ffi::Ffi::Bind()
                                  .Arg<ffi::Buffer<ffi::U32>>()
                                  .Arg<ffi::Buffer<ffi::U32>>()
                                  .RemainingRets()
                                  .To(on_host);
  return handler->Call(frame);
}

}  // namespace millstream
