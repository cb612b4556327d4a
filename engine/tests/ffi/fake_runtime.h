#pragma once

#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "xla/ffi/api/c_api.h"

struct XLA_FFI_Error {
  XLA_FFI_Error_Code code;
  std::string message;
};

/// A future that the test waits for, as XLA would.
struct XLA_FFI_Future {
  std::mutex mutex;
  std::condition_variable done;
  bool available = false;
  std::unique_ptr<XLA_FFI_Error> error;
};

namespace millstream {

/// The parts of XLA's runtime that a handler calls.
inline const XLA_FFI_Api& fake_api() {
  static const XLA_FFI_Api api = [] {
    XLA_FFI_Api made{};
    made.struct_size = XLA_FFI_Api_STRUCT_SIZE;
    made.api_version = {XLA_FFI_Api_Version_STRUCT_SIZE, nullptr, XLA_FFI_API_MAJOR,
                        XLA_FFI_API_MINOR};
    made.XLA_FFI_Error_Create = [](XLA_FFI_Error_Create_Args* args) {
      return new XLA_FFI_Error{args->errc, args->message};
    };
    made.XLA_FFI_Error_GetMessage = [](XLA_FFI_Error_GetMessage_Args* args) {
      args->message = args->error->message.c_str();
    };
    made.XLA_FFI_Error_Destroy = [](XLA_FFI_Error_Destroy_Args* args) {
      delete args->error;
    };
    made.XLA_FFI_Future_Create = [](XLA_FFI_Future_Create_Args* args) {
      args->future = new XLA_FFI_Future;
      return static_cast<XLA_FFI_Error*>(nullptr);
    };
    made.XLA_FFI_Future_SetAvailable = [](XLA_FFI_Future_SetAvailable_Args* args) {
      const std::lock_guard lock(args->future->mutex);
      args->future->available = true;
      args->future->done.notify_all();
      return static_cast<XLA_FFI_Error*>(nullptr);
    };
    made.XLA_FFI_Future_SetError = [](XLA_FFI_Future_SetError_Args* args) {
      const std::lock_guard lock(args->future->mutex);
      args->future->available = true;
      args->future->error.reset(args->error);
      args->future->done.notify_all();
      return static_cast<XLA_FFI_Error*>(nullptr);
    };
    return made;
  }();
  return api;
}

/// An XLA buffer that owns its memory.
class FakeBuffer {
 public:
  FakeBuffer(XLA_FFI_DataType dtype, std::vector<std::int64_t> dims,
             std::size_t element_bytes)
      : dims_(std::move(dims)) {
    std::size_t elements = 1;
    for (const std::int64_t extent : dims_)
      elements *= static_cast<std::size_t>(extent);
    bytes_.resize(elements * element_bytes);
    buffer_ = {XLA_FFI_Buffer_STRUCT_SIZE,
               nullptr,
               dtype,
               bytes_.data(),
               static_cast<std::int64_t>(dims_.size()),
               dims_.data()};
  }
  FakeBuffer(const FakeBuffer&) = delete;
  FakeBuffer& operator=(const FakeBuffer&) = delete;

  void* raw() { return &buffer_; }
  const std::vector<std::byte>& bytes() const { return bytes_; }
  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(bytes_.data());
  }

 private:
  std::vector<std::int64_t> dims_;
  std::vector<std::byte> bytes_;
  XLA_FFI_Buffer buffer_;
};

/// The result of a call: nothing, or the code and message of an error.
using Outcome = std::optional<std::pair<XLA_FFI_Error_Code, std::string>>;

/// Calls a handler as XLA does, and waits for its future if there is one.
inline Outcome call(XLA_FFI_Handler* handler, std::vector<FakeBuffer*> arguments,
                    std::vector<FakeBuffer*> results,
                    std::vector<std::pair<std::string, std::int64_t>> attributes) {
  std::vector<XLA_FFI_ArgType> argument_types(arguments.size(), XLA_FFI_ArgType_BUFFER);
  std::vector<XLA_FFI_RetType> result_types(results.size(), XLA_FFI_RetType_BUFFER);
  std::vector<void*> argument_pointers;
  std::vector<void*> result_pointers;
  for (FakeBuffer* argument : arguments) argument_pointers.push_back(argument->raw());
  for (FakeBuffer* result : results) result_pointers.push_back(result->raw());

  std::vector<XLA_FFI_AttrType> attribute_types(attributes.size(),
                                                XLA_FFI_AttrType_SCALAR);
  std::vector<XLA_FFI_ByteSpan> names;
  std::vector<XLA_FFI_Scalar> scalars;
  for (auto& [name, value] : attributes) {
    names.push_back({name.data(), name.size()});
    scalars.push_back({XLA_FFI_DataType_S64, &value});
  }
  std::vector<XLA_FFI_ByteSpan*> name_pointers;
  std::vector<void*> scalar_pointers;
  for (XLA_FFI_ByteSpan& name : names) name_pointers.push_back(&name);
  for (XLA_FFI_Scalar& scalar : scalars) scalar_pointers.push_back(&scalar);

  XLA_FFI_CallFrame frame{};
  frame.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
  frame.api = &fake_api();
  frame.stage = XLA_FFI_ExecutionStage_EXECUTE;
  frame.args = {XLA_FFI_Args_STRUCT_SIZE, nullptr,
                static_cast<std::int64_t>(arguments.size()), argument_types.data(),
                argument_pointers.data()};
  frame.rets = {XLA_FFI_Rets_STRUCT_SIZE, nullptr,
                static_cast<std::int64_t>(results.size()), result_types.data(),
                result_pointers.data()};
  frame.attrs = {XLA_FFI_Attrs_STRUCT_SIZE,
                 nullptr,
                 static_cast<std::int64_t>(attributes.size()),
                 attribute_types.data(),
                 name_pointers.data(),
                 scalar_pointers.data()};
  std::unique_ptr<XLA_FFI_Error> error(handler(&frame));
  if (frame.future != nullptr) {
    const std::unique_ptr<XLA_FFI_Future> future(frame.future);
    std::unique_lock lock(future->mutex);
    future->done.wait(lock, [&] { return future->available; });
    error = std::move(future->error);
  }
  if (error == nullptr) return std::nullopt;
  return std::pair(error->code, error->message);
}

}  // namespace millstream
