"""Django's own applications with ObjectId keys, as in the backend's manual."""

from django.contrib.auth.apps import AuthConfig
from django.contrib.contenttypes.apps import ContentTypesConfig

KEY = "django_mongodb_backend.fields.ObjectIdAutoField"


class Auth(AuthConfig):
    default_auto_field = KEY


class ContentTypes(ContentTypesConfig):
    default_auto_field = KEY
