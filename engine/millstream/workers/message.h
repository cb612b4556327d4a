#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "millstream/core/error.h"
#include "millstream/workers/shared_memory.h"

namespace millstream {

/// The kinds of messages between a worker pool and a worker process. A message is a
/// header and a body.
enum class MessageKind : std::uint32_t {
  kSetup = 1,  // to the worker: where it stores its current row, then the setup
  kTask,       // to the worker: a `Task`
  kReady,      // from the worker, after the setup
  kDone,       // from the worker, after a task: the host value of each row, or nothing
  kFailed,     // from the worker: a `Failure`
};

struct MessageHeader {
  MessageKind kind = MessageKind::kReady;
  std::uint32_t reserved = 0;
  std::int64_t bytes = 0;  // of the body
};

/// The rows that a worker makes, and where it reads and writes them.
struct Task {
  /// One column: the location of its first row, and the bytes from one row to the next.
  struct Rows {
    SharedLocation location;
    std::int64_t stride = 0;
  };
  std::vector<std::int64_t> indices;
  std::vector<std::uint64_t> seeds;
  std::vector<Rows> input;
  std::vector<Rows> output;
  std::vector<std::string> host_values;  // one per row, empty if it has none; or none
};

/// The row that failed (-1 for the setup), the message, and the exception as the worker
/// encoded it.
struct Failure {
  std::int64_t row = -1;
  std::string message;
  std::string bytes;
  bool transient = false;  // another try may succeed
};

/// Appends trivially copyable values, and arrays of them with their length.
class MessageWriter {
 public:
  explicit MessageWriter(std::string& to) : to_(to) {}

  template <typename T>
  void value(const T& value) {
    static_assert(std::has_unique_object_representations_v<T>);
    to_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  template <typename T>
  void values(std::span<const T> values) {
    value(static_cast<std::int64_t>(values.size()));
    to_.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  }
  void strings(std::span<const std::string> strings) {
    value(static_cast<std::int64_t>(strings.size()));
    for (const std::string& string : strings) values(std::span<const char>(string));
  }

 private:
  std::string& to_;
};

/// Reads what `MessageWriter` wrote. Throws `DataError` if there are too few bytes.
class MessageReader {
 public:
  explicit MessageReader(std::string_view from) : from_(from) {}

  template <typename T>
  T value() {
    static_assert(std::is_trivially_copyable_v<T>);
    T result;
    std::memcpy(&result, bytes(sizeof(T)).data(), sizeof(T));
    return result;
  }
  template <typename T>
  std::vector<T> values() {
    const auto count = value<std::int64_t>();
    if (count < 0 || static_cast<std::size_t>(count) > from_.size() / sizeof(T)) {
      throw DataError("a worker's message is cut off");
    }
    const std::string_view raw = bytes(static_cast<std::size_t>(count) * sizeof(T));
    std::vector<T> result(static_cast<std::size_t>(count));
    if (count > 0) std::memcpy(result.data(), raw.data(), raw.size());
    return result;
  }
  std::vector<std::string> strings() {
    const auto count = value<std::int64_t>();
    // Each string takes the bytes of its length at least.
    if (count < 0 ||
        static_cast<std::size_t>(count) > from_.size() / sizeof(std::int64_t)) {
      throw DataError("a worker's message is cut off");
    }
    std::vector<std::string> result(static_cast<std::size_t>(count));
    for (std::string& string : result) string = this->string();
    return result;
  }
  std::string string() {
    const auto size = value<std::int64_t>();
    if (size < 0) throw DataError("a worker's message is cut off");
    return std::string(bytes(static_cast<std::size_t>(size)));
  }
  std::string_view rest() const noexcept { return from_; }

 private:
  std::string_view bytes(std::size_t count) {
    if (count > from_.size()) throw DataError("a worker's message is cut off");
    const std::string_view result = from_.substr(0, count);
    from_.remove_prefix(count);
    return result;
  }
  std::string_view from_;
};

/// A header and the body.
std::string framed(MessageKind kind, std::string_view body);

std::string encoded(const Task& task);
Task decoded_task(std::string_view body);
std::string encoded(std::span<const std::string> host_values);
std::vector<std::string> decoded_host_values(std::string_view body);
std::string encoded(const Failure& failure);
Failure decoded_failure(std::string_view body);

/// Reads the header at the start of `bytes`. Throws `DataError` if it is not valid.
MessageHeader header_of(std::string_view bytes);

/// Both functions block, and return false if the connection is closed. `receive` throws
/// `DataError` if the header is not valid.
bool send_all(int socket, std::string_view bytes) noexcept;
bool receive(int socket, MessageKind& kind, std::string& body);

}  // namespace millstream
