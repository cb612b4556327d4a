#include "millstream/workers/message.h"

#include <sys/socket.h>

#include <cerrno>

namespace millstream {
namespace {

constexpr std::int64_t kLongest = std::int64_t{1} << 40;

bool receive_all(int socket, char* to, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t got = recv(socket, to, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    to += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

}  // namespace

std::string framed(MessageKind kind, std::string_view body) {
  std::string message;
  message.reserve(sizeof(MessageHeader) + body.size());
  MessageWriter(message).value(
      MessageHeader{kind, 0, static_cast<std::int64_t>(body.size())});
  message.append(body);
  return message;
}

std::string encoded(const Task& task) {
  std::string body;
  MessageWriter writer(body);
  writer.values(std::span(task.indices));
  writer.values(std::span(task.seeds));
  writer.values(std::span(task.input));
  writer.values(std::span(task.output));
  writer.strings(task.host_values);
  return body;
}

Task decoded_task(std::string_view body) {
  MessageReader reader(body);
  Task task;
  task.indices = reader.values<std::int64_t>();
  task.seeds = reader.values<std::uint64_t>();
  task.input = reader.values<Task::Rows>();
  task.output = reader.values<Task::Rows>();
  task.host_values = reader.strings();
  return task;
}

std::string encoded(std::span<const std::string> host_values) {
  std::string body;
  MessageWriter(body).strings(host_values);
  return body;
}

std::vector<std::string> decoded_host_values(std::string_view body) {
  return MessageReader(body).strings();
}

std::string encoded(const Failure& failure) {
  std::string body;
  MessageWriter writer(body);
  writer.value(failure.row);
  writer.values(std::span<const char>(failure.message));
  writer.values(std::span<const char>(failure.bytes));
  writer.value(failure.transient);
  return body;
}

Failure decoded_failure(std::string_view body) {
  MessageReader reader(body);
  Failure failure;
  failure.row = reader.value<std::int64_t>();
  failure.message = reader.string();
  failure.bytes = reader.string();
  const auto transient = reader.value<std::uint8_t>();
  if (transient > 1)
    throw DataError(text("expected 0 or 1 for a flag in a worker's message, found ",
                         int{transient}));
  failure.transient = transient == 1;
  return failure;
}

MessageHeader header_of(std::string_view bytes) {
  const auto header = MessageReader(bytes).value<MessageHeader>();
  if (header.kind < MessageKind::kSetup || header.kind > MessageKind::kFailed) {
    throw DataError(text("unknown kind of a worker's message: ",
                         static_cast<std::uint32_t>(header.kind)));
  }
  if (header.bytes < 0 || header.bytes > kLongest) {
    throw DataError(text("a worker's message cannot have ", header.bytes, " bytes"));
  }
  return header;
}

bool send_all(int socket, std::string_view bytes) noexcept {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

bool receive(int socket, MessageKind& kind, std::string& body) {
  char raw[sizeof(MessageHeader)];
  if (!receive_all(socket, raw, sizeof(raw))) return false;
  const MessageHeader header = header_of({raw, sizeof(raw)});
  kind = header.kind;
  body.resize(static_cast<std::size_t>(header.bytes));
  return receive_all(socket, body.data(), body.size());
}

}  // namespace millstream
